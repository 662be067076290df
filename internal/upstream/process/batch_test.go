package process

import (
	"errors"
	"testing"
)

func TestABatchFileIsKnownByItsName(t *testing.T) {
	for name, want := range map[string]bool{
		"npx.cmd": true, "NPX.CMD": true, "run.bat": true, "run.bat. .": true, "run.cmd ": true,
		"npx": false, "node.exe": false, "cmd": false, "bat": false, "x.cmd.exe": false,
	} {
		if got := isBatch(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// What one argument says stays one argument: cmd.exe runs no second command.
func TestAnArgumentOfABatchFileStaysOneArgument(t *testing.T) {
	for _, tt := range []struct{ arg, want string }{
		{`-y`, `-y`},
		{`@scope/server-files`, `@scope/server-files`},
		{`C:\Users\me`, `C:\Users\me`},
		{``, `""`},
		{`two words`, `"two words"`},
		{`a&calc.exe`, `"a&calc.exe"`},
		{`"&calc.exe`, `"""&calc.exe"`},
		{`a" & calc & "b`, `"a"" & calc & ""b"`},
		{`a\"&calc`, `"a\\""&calc"`},
		{`C:\a b\`, `"C:\a b\\"`},
		{`C:\`, `"C:\\"`},
		{`%PATH%`, `"%%cd:~,%PATH%%cd:~,%"`},
		{`!PATH!^|<>()`, `"!PATH!^|<>()"`},
		{`{"key":"value"}`, `"{""key"":""value""}"`},
		{"\u00e9", "\"\u00e9\""},
	} {
		got, err := batchCommandLine(`C:\Windows\System32\cmd.exe`, `C:\Program Files\nodejs\npx.cmd`, []string{tt.arg, "end"})
		want := `"C:\Windows\System32\cmd.exe" /d /e:on /v:off /s /c ""C:\Program Files\nodejs\npx.cmd" ` + tt.want + ` end"`
		if got != want || err != nil {
			t.Errorf("%q: %s, %v\nwant %s", tt.arg, got, err, want)
		}
	}
	for _, arg := range []string{"a\nb", "a\rb", "a\x00b"} {
		if line, err := batchCommandLine("cmd", "x.cmd", []string{arg}); !errors.Is(err, errBatchArgument) {
			t.Errorf("%q gives %s, %v", arg, line, err)
		}
	}
}
