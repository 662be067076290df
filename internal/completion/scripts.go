package completion

// Shells are the shells with a script.
var Shells = []string{"bash", "zsh", "fish", "powershell"}

// Script returns the script of a shell, "" for another one. The program that it calls is the one that the user types, with the hidden command
// complete.
func Script(shell string) string { return scripts[shell] }

var scripts = map[string]string{
	"bash": `# Completion of switchboard for bash. To use it now:  source <(switchboard completion bash)
_switchboard() {
    local line paths word quote
    COMPREPLY=()
    word=$2
    quote=${COMP_WORDS[COMP_CWORD]:0:1}
    {
        IFS= read -r paths
        while IFS= read -r line; do
            case $quote in
            '"') line=${line//\\/\\\\}; line=${line//\"/\\\"}; line=${line//\$/\\\$}; line=${line//\` + "`" + `/\\\` + "`" + `} ;;
            "'") line=${line//\'/\'\\\'\'} ;;
            *) printf -v line '%q' "$line" ;;
            esac
            COMPREPLY+=("$line")
        done
    } < <("$1" complete bash -- "${COMP_LINE:0:COMP_POINT}" "$word" 2>/dev/null)
    case $paths in
    files) compopt -o filenames -o default 2>/dev/null; while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$word") ;;
    folders) compopt -o filenames -o dirnames 2>/dev/null; while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -d -- "$word") ;;
    esac
}
complete -F _switchboard switchboard
`,
	"zsh": `#compdef switchboard
# Completion of switchboard for zsh. To use it now:  source <(switchboard completion zsh)
_switchboard() {
    local -a lines found
    local line paths
    lines=("${(@f)$("${(Q)words[1]}" complete zsh -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    paths=$lines[1]
    shift lines
    for line in $lines; do
        [[ -z $line ]] && continue
        if [[ $line == *$'\t'* ]]; then
            found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        else
            found+=("${line//:/\\:}")
        fi
    done
    (( $#found )) && _describe -V switchboard found
    case $paths in
    files) _files ;;
    folders) _files -/ ;;
    esac
}
if [[ $funcstack[1] == _switchboard ]]; then
    _switchboard "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _switchboard switchboard
fi
`,
	"fish": `# Completion of switchboard for fish. To use it now:  switchboard completion fish | source
function __switchboard_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l lines ($words[1] complete fish -- $words[2..-1] "$word" 2>/dev/null)
    set -l paths $lines[1]
    printf '%s\n' $lines[2..-1]
    switch "$paths"
        case files
            __fish_complete_path "$word"
        case folders
            __fish_complete_directories "$word"
    end
end
complete -c switchboard -e
complete -c switchboard -f -k -a '(__switchboard_complete)'
`,
	"powershell": `# Completion of switchboard for PowerShell. To use it now:  switchboard completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName switchboard -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Where-Object { $_.Extent.EndOffset -lt $cursorPosition } | ForEach-Object { $_.ToString().Trim("'", '"') })
    $program = $words[0]
    $rest = @($words | Select-Object -Skip 1)
    $lines = @(& $program complete powershell -- @rest "=$wordToComplete" 2>$null)
    if ($lines.Count -eq 0) { return }
    $lines | Select-Object -Skip 1 | ForEach-Object {
        $word, $help = $_ -split [char]9, 2
        if (-not $help) { $help = $word }
        $text = $word
        if ($word -match '[^-\w./:=]') { $text = "'" + $word.Replace("'", "''") + "'" }
        [System.Management.Automation.CompletionResult]::new($text, $word, 'ParameterValue', $help)
    }
}
`,
}
