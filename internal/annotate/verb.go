package annotate

import (
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A wordSign says which verb a word stands for, and how strongly: 1 to 3.
type wordSign struct {
	verb     switchboard.Verb
	strength int
}

// verbWords are the words that stand for a verb at the beginning of a name, at its end, or as the first verb of a
// sentence. A word of strength 1 is more often a noun.
var verbWords = parseVerbs([]verbRow{
	{switchboard.Search, 3, `
		autocomplete buscar discover find grep lookup pesquisar search
	`},
	{switchboard.Search, 2, `
		locate nearby query searcher searching suggest
	`},
	{switchboard.Read, 3, `
		browse consultar describe display fetch get getter give heapsnapshot inspect list listar lists obtain obtener obter
		provide read retrieve return screenshot show snapshot view
	`},
	{switchboard.Read, 2, `
		access aggregate cat check collect count crawl determine download dump enumerate explore export extract fetcher gather
		head identify inform load ls monitor parse peek ping report scrape see select stat tail track watch whoami
	`},
	{switchboard.Read, 1, `
		available current detail details diff exists forecast history info information latest log logs metadata overview preview
		random recent schema statistics stats status summary top trending version weather
	`},
	{switchboard.Write, 3, `
		activate add append apply approve archive assign attach change clear create criar deactivate delete destroy detach
		disable dismiss drop edit enable erase excluir expire flush fork grant insert merge modify move overwrite patch persist
		prune purge put register reject remove rename reorder replace reset resolve restore revoke rotate save set store
		terminate truncate unarchive unassign unlink unpublish unregister update upload upsert wipe write
	`},
	{switchboard.Write, 2, `
		accept adjust annotate associate book bump checkout cherry clone close comment commit complete configure confirm copy
		cordon cp decline decrement disassociate duplicate favorite follow hide import increment ingest init initialize install
		invite join label leave like link lock manage mark mint mkdir mv pay pin post publish pull push reassign rebase redo
		reopen respond retweet revert rm schedule setup share sign star stash submit subscribe sync tag touch tweet undo
		unfollow uninstall unlike unlock unpin unset unstar unsubscribe untag
	`},
	{switchboard.Write, 1, `
		alias ban block draft
	`},
	{switchboard.Execute, 3, `
		abort authenticate build cancel click compile connect deploy disconnect drag eval evaluate exec execute generate hover
		invoke jump kill launch login logout navigate pause play press reboot render restart resume rollback run scroll shutdown
		simulate sleep start stop swipe tap transcribe trigger undeploy wait walk
	`},
	{switchboard.Execute, 2, `
		attack back buy call capture control crop debug dispatch do drain draw emulate exit fill fly focus force forward fuzz
		handle interact key migrate open order perform print process rebuild record refresh resize retry scale scan seek sell
		skip spawn speak swap switch test transcode transfer type upgrade use
	`},
	{switchboard.Execute, 1, `
		go new take
	`},
	{switchboard.Reason, 3, `
		analyse analyze assess calculate classify compare convert detect divide estimate explain format interpret lint multiply
		normalize optimize plan predict reason recommend score sequentialthinking solve subtract summarise summarize think
		tokenize translate validate verify
	`},
	{switchboard.Reason, 2, `
		analysis answer ask calculator chat compute conversion critique debate decode encode guard prompt rank review sum
		transform
	`},
	{switchboard.Notify, 3, `
		broadcast notify reply send
	`},
	{switchboard.Notify, 2, `
		announce remind
	`},
})

type verbRow struct {
	verb     switchboard.Verb
	strength int
	words    string
}

// parseVerbs builds the table. The first row with a word counts.
func parseVerbs(rows []verbRow) map[string]wordSign {
	table := map[string]wordSign{}
	for _, row := range rows {
		for w := range strings.FieldsSeq(row.words) {
			if _, ok := table[w]; !ok {
				table[w] = wordSign{row.verb, row.strength}
			}
		}
	}
	return table
}

// neutralWords say what a call does, and leave open whether it changes something: "export" may write a file, "select" may
// click.
var neutralWords = wordSet("select load export track collect download format optimize convert verify validate lint translate plan think ask solve transform report dump gather render extract crawl scrape explore display query monitor watch access provide give review prompt chat answer debate interpret normalize suggest recommend screenshot snapshot heapsnapshot aggregate ping parse process open head tail generate scan detect sequentialthinking")
