// Package bench measures what the proxy costs beyond the relaying itself: CPU
// time a request of its process, against Caddy's own reverse_proxy in another
// process of the same program, with the same TLS legs (TLS in, TLS with a
// client certificate and a private CA out), the same upstream, the same
// requests, in the same run.
//
// A machine that does other things at the same time changes all numbers from
// one second to the next, so the processes are loaded in turn, in short rounds,
// and a ratio is the median of the ratios within each round. CPU time is read
// from the kernel's clock of each process, in nanoseconds, garbage collection
// included; allocations are those the process counts itself.
//
// Each server runs twice: writing one line to a file for each request (the
// audit line here, the access log there), and writing none. `make bench` prints
//
//	ratio            both write their line
//	bare-ratio       neither does
//	audited-ratio    only the proxy does, against a Caddy that logs nothing
//
// Streams are measured beside stock reverse_proxy and beside the reverse proxy of
// Go's own library, which runs in a third process: BenchmarkWatches is the memory of
// 2,000 idle watches, BenchmarkSessions the CPU time of 100 sessions that echo short
// messages, as an exec with a terminal does. ratio is against stock reverse_proxy,
// go-ratio against the library's. On two cores a watch took 108 KiB here and in stock
// reverse_proxy, 74 KiB in the library's (94, 92 and 59 KiB on HTTP/2), and a message
// 23 µs of CPU in all three.
//
// To see where the time goes:
//
//	cd integration && go test -run '^$' -bench Relay -benchtime 1x ./suites/bench -args -profile /tmp/profiles
//	go tool pprof -top /tmp/profiles/h2-proxyauth.cpu.pprof
package bench
