package caddymodule

import (
	"context"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
)

// defaultGrace is how long upgraded connections may go on after SIGTERM when
// the configuration sets no grace_period (STREAM-2).
const defaultGrace = 30 * time.Second

func init() {
	// Caddy runs it when all apps have stopped and before the process ends.
	caddy.OnExit(process.FinishExit)
}

// startHandler hears that all apps have started.
type startHandler struct{ app *App }

// Handle puts the configuration into force.
func (h startHandler) Handle(context.Context, caddy.Event) error {
	h.app.started()
	return nil
}

// exitHandler hears that Caddy is stopping.
type exitHandler struct{ app *App }

// Handle begins the end of the process. A configuration that stops because
// another takes its place changes nothing.
func (e exitHandler) Handle(context.Context, caddy.Event) error {
	if caddy.Exiting() {
		process.BeginExit(e.app.shutdownTimes())
	}
	return nil
}

// Interface guards.
var (
	_ caddyevents.Handler = startHandler{}
	_ caddyevents.Handler = exitHandler{}
)
