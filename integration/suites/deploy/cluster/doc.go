// Package cluster tests the charts as they are used: installed by Helm on a
// cluster of one node, with real pods of an image built here, which serve
// kubectl through their Service, are restarted, upgraded and killed under
// load, and are uninstalled again (CHART-1, CHART-2, STREAM-2, CONF-4, CRD-02).
package cluster
