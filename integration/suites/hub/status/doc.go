// Package status holds the tests of what the product writes to the hub: the
// status of its objects, and Events (REC-1 to REC-7).
package status
