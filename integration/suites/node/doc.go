// Package node holds the tests that need a whole node, with real pods. The short
// ones share one, which TestNode leads through its life:
//
//   - the node itself: Deployments, Services, images made here, an apiserver that
//     goes away, and that nothing of it is left on the machine afterwards;
//   - what kubectl streams through the proxy: exec, attach, cp, port-forward,
//     logs -f and watch, over WebSocket and SPDY, in both modes (RELAY-2), and in
//     quantity (LIM-02, RELAY-6);
//   - the charts as they are used: installed by Helm, with pods of an image built
//     here, which serve kubectl through their Service, are restarted, upgraded
//     and killed under load, and are uninstalled again (CHART-1, CHART-2,
//     STREAM-2, CONF-4, CRD-02).
//
// The long ones run kubectl of the pinned and of the oldest version in both forms
// of URL and over each protocol: large bodies and lists, terminals, kubectl debug
// and proxy, an aggregated API server, an apiserver that is restarted
// (TestLongKubectl), and streams that are silent for minutes (TestLongSTR06).
package node
