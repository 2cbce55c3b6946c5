// Package apifault classifies the errors of an apiserver by what they mean for
// the proxy, and decides when a refusal that lasts is worth a log line.
package apifault
