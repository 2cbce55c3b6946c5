//go:build !race

package safecel

const slowdown = 1
