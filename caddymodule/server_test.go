package caddymodule

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// A server with Caddy's default takes headers of 64 KiB; a choice of the
// administrator stays, with a warning where it is too small.
func TestRaiseMaxHeader(t *testing.T) {
	for _, tc := range []struct{ given, want, warnings int }{
		{16 << 10, 64 << 10, 0}, {64 << 10, 64 << 10, 0}, {1 << 20, 1 << 20, 0}, {20 << 10, 20 << 10, 1}, {8 << 10, 8 << 10, 1},
	} {
		core, logs := observer.New(zapcore.WarnLevel)
		server := &caddyhttp.Server{MaxHeaderBytes: tc.given}
		raiseMaxHeader(server, zap.New(core))
		if server.MaxHeaderBytes != tc.want || logs.Len() != tc.warnings {
			t.Errorf("%d becomes %d with %d warnings, want %d with %d", tc.given, server.MaxHeaderBytes, logs.Len(), tc.want, tc.warnings)
		}
	}
}

// RELAY-3: the one timeout that limits a whole answer is told.
func TestWarnOfWriteTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		server   *caddyhttp.Server
		warnings int
	}{
		"none":   {server: &caddyhttp.Server{}},
		"others": {server: &caddyhttp.Server{ReadTimeout: 1, ReadHeaderTimeout: 1, ReadIdleTimeout: 1, WriteIdleTimeout: 1, IdleTimeout: 1}},
		"write":  {server: &caddyhttp.Server{WriteTimeout: caddy.Duration(time.Hour)}, warnings: 1},
	} {
		core, logs := observer.New(zapcore.WarnLevel)
		warnOfWriteTimeout(tc.server, zap.New(core))
		if logs.Len() != tc.warnings {
			t.Errorf("%s: %d warnings, want %d", name, logs.Len(), tc.warnings)
		}
	}
}

// URL-2: a site in which proxyauth has a matcher, and nothing takes the rest, is
// found, and no other.
func TestGaps(t *testing.T) {
	for name, tc := range map[string]struct {
		site string
		want []string
	}{
		"no matcher":            {site: "proxyauth"},
		"a matcher":             {site: "proxyauth /clusters/*", want: []string{"k8s.example.com other.example.com"}},
		"with middleware":       {site: "encode\nheader X y\nlog_append a b\nproxyauth /clusters/*", want: []string{"k8s.example.com other.example.com"}},
		"and respond":           {site: "proxyauth /clusters/*\nrespond 404"},
		"and respond elsewhere": {site: "proxyauth /clusters/*\nrespond /x 404", want: []string{"k8s.example.com other.example.com"}},
		"and another relay":     {site: "proxyauth /clusters/*\nreverse_proxy 127.0.0.1:1"},
		"and files":             {site: "proxyauth /clusters/*\nfile_server"},
		"two of them":           {site: "proxyauth /clusters/team-a/*\nproxyauth"},
		"in handle":             {site: "handle /clusters/* {\nproxyauth\n}", want: []string{"k8s.example.com other.example.com"}},
		"in handle, with rest":  {site: "handle /clusters/* {\nproxyauth\n}\nhandle {\nrespond 404\n}"},
		"matched inside handle": {site: "handle {\nproxyauth /clusters/*\n}", want: []string{"k8s.example.com other.example.com"}},
		"composed":              {site: "route /clusters/* {\nproxyauth_authenticate\nreverse_proxy {\ndynamic proxyauth\ntransport proxyauth\n}\n}", want: []string{"k8s.example.com other.example.com"}},
		"elsewhere":             {site: "respond /x 404"},
	} {
		t.Run(name, func(t *testing.T) {
			text := adapt(t, "{\n\tproxyauth {\n\t\tdirectory "+t.TempDir()+"\n\t}\n}\nk8s.example.com, other.example.com {\n"+tc.site+"\n}\n")
			_, text, _ = strings.Cut(text, "\n{") // behind a warning about the format
			var config caddy.Config
			if err := json.Unmarshal([]byte("{"+text), &config); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			ctx, err := caddy.ProvisionContext(&config)
			if err != nil {
				t.Fatal(err)
			}
			mod, err := ctx.App("http")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, server := range mod.(*caddyhttp.App).Servers {
				got = append(got, gaps(server.Routes, false, "")...)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
