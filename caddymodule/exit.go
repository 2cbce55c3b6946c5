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

// eventHandler hears of an event of Caddy, which logs its handlers as JSON.
type eventHandler struct{ run func() }

// Handle runs the handler.
func (h eventHandler) Handle(context.Context, caddy.Event) error {
	h.run()
	return nil
}

// stopping hears that Caddy is stopping this configuration: the process ends, or
// another configuration is in force.
func (a *App) stopping() {
	if caddy.Exiting() {
		process.BeginExit(a.shutdownTimes())
		return
	}
	a.lifetime.Replace()
}

// Interface guard.
var _ caddyevents.Handler = eventHandler{}
