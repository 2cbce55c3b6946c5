// Package reference decides which Secrets and ConfigMaps an object may name.
//
// # Threat model
//
// The author of an object must not read through the proxy what they could not
// read themselves. A reference stays in the namespace of the object, unless the
// administrator of the proxy opened another (API-4), and never names a Secret of
// the proxy itself (API-5). The sources ask the hub for what this package
// allows; package compile refuses the object for everything else.
package reference
