package search

import (
	"slices"
	"strings"
)

// alike are words by which people and the authors of tools mean the same, a
// group a line: one asks to "show" what another's tool is to "get". The groups
// stand around the words that the names of real servers' tools hold most, and
// were written down at once, not one by one for what was not found: a word that
// helps a single question has no place here.
const alike = `
	get read fetch retrieve show view display open load
	list enumerate browse
	search find query lookup locate
	create new add make insert
	delete remove erase clear drop destroy
	update edit modify change patch set
	write save store put
	send post publish submit
	run execute exec invoke launch
	start launch begin
	stop cancel end terminate kill
	copy duplicate clone
	move rename
	check verify validate test
	calculate compute
	analyze inspect examine
	summary summarize overview
	info information details metadata
	status state health
	stats statistics metrics analytics
	history historical past
	current now latest recent
	multiple several many batch bulk
	file document doc
	folder directory
	repo repository
	db database
	config configuration settings
	app application
	auth authentication login
	image picture photo
	email mail
	message msg
	text content
	url link
	web internet online
	news headlines
	weather forecast
	price cost
	location place
	job task
	issue ticket
	comment reply
	error exception failure
`

// synonyms says, by stem, which other stems mean the same.
var synonyms = func() map[string][]string {
	m := map[string][]string{}
	for line := range strings.Lines(alike) {
		group := strings.Fields(line)
		for i, w := range group {
			group[i] = stemOf(w)
		}
		for _, w := range group {
			for _, other := range group {
				if other != w && !slices.Contains(m[w], other) {
					m[w] = append(m[w], other)
				}
			}
		}
	}
	return m
}()

// set is the set of the words in text.
func set(text string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		m[w] = true
	}
	return m
}
