package trust

import "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"

// fairQueue is a workqueue.Queue in which namespaces take turns; of one
// namespace the cluster that came first is first. Nothing is kept of a namespace
// that has no cluster waiting.
type fairQueue struct {
	waiting map[string][]k8swatch.Key
	// turns are the namespaces that wait, the next one first.
	turns []string
	size  int
}

func newFairQueue() *fairQueue { return &fairQueue{waiting: map[string][]k8swatch.Key{}} }

// Touch does nothing: a cluster that waits keeps its place.
func (*fairQueue) Touch(k8swatch.Key) {}

// Len is how many clusters wait.
func (q *fairQueue) Len() int { return q.size }

// Push adds a cluster.
func (q *fairQueue) Push(key k8swatch.Key) {
	if len(q.waiting[key.Namespace]) == 0 {
		q.turns = append(q.turns, key.Namespace)
	}
	q.waiting[key.Namespace] = append(q.waiting[key.Namespace], key)
	q.size++
}

// Pop takes the next cluster of the next namespace. The queue must not be empty.
func (q *fairQueue) Pop() k8swatch.Key {
	namespace := q.turns[0]
	q.turns = q.turns[1:]
	keys := q.waiting[namespace]
	q.size--
	if len(keys) == 1 {
		delete(q.waiting, namespace)
	} else {
		q.waiting[namespace] = keys[1:]
		q.turns = append(q.turns, namespace)
	}
	return keys[0]
}
