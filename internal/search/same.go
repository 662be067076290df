package search

import (
	"slices"
	"strings"
)

// synonymGroups are words that people and the authors of tools use with the same meaning, one group a line: a request
// to "show" may need a tool that says "get". The groups contain the words that occur most in the names of real
// servers' tools. They were written at once, and not one by one after failed searches: do not add a word that helps a
// single question.
const synonymGroups = `
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

// synonyms has, by stem, the other stems with the same meaning.
var synonyms = func() map[string][]string {
	m := map[string][]string{}
	for line := range strings.Lines(synonymGroups) {
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

// wordSet returns the set of the words in text.
func wordSet(text string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		m[w] = true
	}
	return m
}
