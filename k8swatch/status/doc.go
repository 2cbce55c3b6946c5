// Package status tells people what the proxy made of their objects.
//
// [Build] makes the status of one object: its conditions, its trust verdict, its
// path. A [Reconciler] writes it to the hub together with an Event for each
// condition that changed, while this process leads; an [Elector] decides which
// replica leads.
//
// Everyone who may write the status of an object could forge one. Therefore a
// status may close a cluster on a replica that did not probe itself
// ([TrustRefusal]), and never opens one (TRUST-4).
package status
