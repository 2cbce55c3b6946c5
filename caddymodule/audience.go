package caddymodule

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// audienceWarningPause is the least time between two warnings of one cluster.
const audienceWarningPause = time.Minute

// audienceWarning tells the proxy admin of tokens for another audience that
// were accepted because audience_validation is warn (AUTH-7). The versions of a
// cluster share it; proxyauth_authentication_total counts each such token.
type audienceWarning struct {
	logger *zap.Logger
	// last is when it was told last, in Unix nanoseconds.
	last atomic.Int64
}

func (w *audienceWarning) warn(key k8swatch.Key) {
	now, last := time.Now().UnixNano(), w.last.Load()
	if last != 0 && now-last < int64(audienceWarningPause) || !w.last.CompareAndSwap(last, now) {
		return
	}
	w.logger.Warn("a token that is not for the audience of the cluster was accepted: audience_validation is warn", zap.Stringer("cluster", key))
}
