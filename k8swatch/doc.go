// Package k8swatch defines what the proxy knows about one apiserver, and where
// that knowledge comes from.
//
// An administrator describes an apiserver in a ProxyKubeApi object, which names
// Secrets, ConfigMaps and Services. Four packages below this one turn objects
// into something that requests can use:
//
//	source/hub, source/directory   follow the objects and what they name: a [Source]
//	compile                        turns one object into one [Cluster]
//	status                         writes conditions and Events back to the object
//
// A [Cluster] is a plain value that never changes. The request path reads it
// without a lock and asks no API.
//
// # Threat model
//
// The author of a ProxyKubeApi is often a tenant, who is trusted with their own
// cluster and with nothing else. Three rules follow.
//
// An object cannot choose the front-proxy certificate. The Secret of that
// certificate has a name computed from the object's name, lives in the namespace
// of the proxy, and carries in an annotation the target that the certificate may
// be presented to. Only the administrator of the proxy writes there. A
// certificate is kept together with the annotations it was accepted under: an
// object that moves to another target never takes the certificate with it, not
// even while the hub cannot be asked.
//
// An object cannot make the proxy read what its author could not read.
// References stay in the namespace of the object, and no object can refer to the
// Secrets of the proxy itself.
//
// A field that cannot be honoured closes the cluster. A field that restricts or
// authenticates is never ignored, a CA that cannot be read never becomes the
// system roots, and a mode that is not allowed never becomes another mode.
//
// Messages end up in the status of an object that a tenant reads and partly
// writes. They name fields, objects and verbs, never the contents of a Secret,
// and they quote other people's text with a bound on its length.
package k8swatch
