// Package replicas tests several replicas on one hub: that each serves by
// itself, that one of them leads, and what becomes of requests, statuses and
// trust when that one, the hub or an apiserver goes away.
package replicas
