package app

import (
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func tmpAuth(*http.Request) (switchboard.Officer, error) {
	return switchboard.Officer{}, switchboard.Refuse(switchboard.CodeNotAuthenticated, "tmp")
}
