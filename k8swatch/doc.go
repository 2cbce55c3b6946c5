// Package k8swatch holds everything that is read from and written to
// Kubernetes: the objects, what they amount to, and their status.
//
// A [Source] follows ProxyKubeApis with the Secrets, ConfigMaps and Services
// they name, either in the hub's API or in a directory. A [Compiler] turns one
// object and what it names into a [Cluster], a plain value that never changes:
// the request path reads it without a lock and calls no API. [BuildStatus]
// says the same to people, in the object's status.
//
// # Threat model
//
// The author of a ProxyKubeApi is often a tenant and is trusted with their own
// cluster only. Three things follow.
//
// An object cannot choose the front-proxy certificate: its Secret has a name
// computed from the object's, lives in the namespace of the proxy, and bears
// the target it may be presented to in an annotation that only the proxy admin
// writes. A pair is kept together with the annotations it was accepted under,
// so that an object that moves to another target never takes the certificate
// with it, not even while the hub cannot be asked.
//
// An object cannot make the proxy read what its author could not: references
// stay in the object's namespace, and the Secrets of the product itself are
// never readable by reference.
//
// What cannot be honoured closes the cluster. A field that restricts or
// authenticates is never ignored, a CA that cannot be read never becomes the
// system roots, a mode that is not allowed never becomes another one.
//
// Messages end up in the status of an object that a tenant reads and partly
// writes: they name fields, objects and verbs, never the contents of a Secret,
// and quote what somebody else wrote with a bound on its length.
package k8swatch
