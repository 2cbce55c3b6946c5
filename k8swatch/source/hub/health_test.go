package hub

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/apifault"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

func TestHubHealth(t *testing.T) {
	var (
		away      = errors.New("dial tcp: connection refused\nand more")
		forbidden = k8stest.ErrForbidden()
		noCRD     = apierrors.NewGenericServerResponse(404, "get", v1.SchemeGroupVersionResource.GroupResource(), "", "", 0, true)
	)
	const (
		lost    = "going on from what was last read"
		waiting = "no cluster is served before it was read once"
		back    = "answers again"
	)
	type step struct {
		after    time.Duration
		resource string
		err      error
		// says is part of the message that this step logs, empty for none.
		says string
	}
	for _, tt := range []struct {
		name     string
		unlisted bool
		steps    []step
	}{
		{name: "lost and back, told once by many watches", steps: []step{
			{0, "a", nil, ""}, {0, "a", away, lost}, {0, "b", away, ""}, {time.Second, "a", away, ""},
			{0, "a", nil, ""}, {0, "b", nil, back}, {0, "b", nil, ""},
		}},
		{name: "before the first list", unlisted: true, steps: []step{{0, "a", away, waiting}}},
		{name: "a long absence is told again", steps: []step{
			{0, "a", away, lost}, {apifault.RemindEvery - 1, "a", away, ""}, {1, "a", away, lost},
		}},
		{name: "a hub that comes and goes", steps: []step{
			{0, "a", away, lost}, {time.Second, "a", nil, back}, {time.Second, "a", away, ""}, {time.Second, "a", nil, ""},
			{flapEvery, "a", away, lost},
		}},
		{name: "a refusal is an answer", steps: []step{{0, "a", away, lost}, {time.Second, "a", forbidden, back}}},
		{name: "a refusal that passes", steps: []step{{0, "a", forbidden, ""}, {apifault.RefusedFor - 1, "a", forbidden, ""}, {0, "a", nil, ""}}},
		{name: "a refusal that lasts", steps: []step{
			{0, "a", forbidden, ""}, {apifault.RefusedFor, "a", forbidden, "does not let the proxy list and watch a"},
			{time.Second, "a", forbidden, ""}, {apifault.RemindEvery, "a", forbidden, "does not let"},
			{time.Second, "a", nil, "can be asked for a again"}, {0, "a", nil, ""},
		}},
		{name: "no CRD", steps: []step{{0, "a", noCRD, ""}, {apifault.RefusedFor, "a", noCRD, "is the CRD of ProxyKubeApi installed?"}}},
		{name: "bad credentials", steps: []step{
			{0, "a", apierrors.NewUnauthorized("x"), ""}, {apifault.RefusedFor, "a", apierrors.NewUnauthorized("x"), "does not accept the credentials"},
		}},
		{name: "what means nothing", steps: []step{
			{0, "a", apierrors.NewResourceExpired("x"), ""}, {time.Hour, "a", apierrors.NewTooManyRequests("x", 1), ""},
			{0, "a", apierrors.NewBadRequest("x"), ""},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			core, logs := observer.New(zapcore.DebugLevel)
			h := newHealth(zap.New(core))
			now := k8stest.Now
			h.now = func() time.Time { return now }
			if !tt.unlisted {
				h.setListed()
			}
			for i, s := range tt.steps {
				now = now.Add(s.after)
				h.report(t.Context(), s.resource, s.err)
				said := logs.TakeAll()
				switch {
				case s.says == "" && len(said) > 0:
					t.Errorf("step %d says %q", i, said[0].Message)
				case s.says != "" && (len(said) != 1 || !strings.Contains(said[0].Message, s.says)):
					t.Errorf("step %d says %v, want %q", i, said, s.says)
				}
				for _, entry := range said {
					if text, _ := entry.ContextMap()["error"].(string); strings.ContainsRune(text, '\n') {
						t.Errorf("step %d: a line break in %q", i, text)
					}
				}
			}
		})
	}
	t.Run("the end of Run is no absence", func(t *testing.T) {
		core, logs := observer.New(zapcore.DebugLevel)
		h := newHealth(zap.New(core))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		h.report(ctx, "a", context.Canceled)
		if all := logs.All(); len(all) > 0 {
			t.Errorf("%v", all)
		}
	})
}
