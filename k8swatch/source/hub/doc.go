// Package hub follows the objects of a Kubernetes API, the hub.
//
// A [Source] watches ProxyKubeApis, Services and the labelled Secrets in the
// namespace of the proxy. Everything else that objects refer to is read by name
// and read again from time to time, so that the proxy needs no right to list
// Secrets or ConfigMaps of tenants.
//
// While the hub does not answer, everything stays as it was last seen.
package hub
