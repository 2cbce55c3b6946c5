//go:build race

package safecel

// slowdown is how much longer code takes at most with the race detector.
const slowdown = 10
