// Package scale measures a proxy with a thousand objects on its hub: how soon
// it serves, how soon a change takes effect, what it writes and what it holds.
package scale
