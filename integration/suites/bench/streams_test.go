package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	watches = 2000
	// streamUsers are the users to whom the watches belong.
	streamUsers = 50
	// h2Watches are the watches of a client on HTTP/2, as those of a controller.
	h2Watches = 10

	sessions = 100
	// messages are sent and echoed by each session in a round, of that size: what
	// someone types.
	messages, messageSize = 100, 64
	sessionRounds         = 15
)

// relay is one of the processes that are compared, as one that relays streams.
type relay struct {
	name, url string // of the cluster
	pid       int
	roots     *x509.CertPool
	client    func(protocol string) *http.Client
	// heap is its profile of the heap, after a collection, as text.
	heap func(ctx context.Context) (string, error)
}

func (s *server) relay() *relay {
	return &relay{
		name: s.name, url: strings.TrimSuffix(s.url, requestPath), pid: s.PID(), roots: s.CA.Pool(), client: s.Client,
		heap: func(ctx context.Context) (string, error) {
			_, text, err := s.AdminDo(ctx, http.MethodGet, "/debug/pprof/heap?gc=1&debug=1", nil)
			return text, err
		},
	}
}

func (p *plainProxy) relay() *relay {
	return &relay{
		name: "go", url: p.url, pid: p.proc.PID(), roots: p.ca.Pool(), client: p.client,
		heap: func(ctx context.Context) (string, error) { return p.get(ctx, "/debug/pprof/heap?gc=1&debug=1") },
	}
}

// BenchmarkWatches is the memory of 2,000 idle watches: what the process holds in
// its heap and stacks, and what the kernel counts.
func BenchmarkWatches(b *testing.B) {
	f := newFixture(b)
	for _, protocol := range []string{"h1", "h2"} {
		b.Run(protocol, func(b *testing.B) {
			for range b.N {
				f.compareWatches(b, protocol)
			}
		})
	}
}

func (f *fixture) compareWatches(b *testing.B, protocol string) {
	relays := []*relay{f.proxyauth.relay(), f.stock.relay(), f.plain.relay()}
	var live, resident []float64
	for _, r := range relays {
		r.watch(b, protocol, 1, f.token)() // pools and caches
		before, residentBefore := r.memory(b)
		end := r.watch(b, protocol, watches, f.token)
		after, residentAfter := r.memory(b)
		end()
		live = append(live, float64(after-before)/watches)
		resident = append(resident, float64(residentAfter-residentBefore)/watches)
		b.Logf("%s %-10s %7.0f bytes a watch in heap and stacks, %7.0f resident; the process has %d MiB", protocol, r.name, live[len(live)-1], resident[len(resident)-1], residentAfter>>20)
		b.ReportMetric(live[len(live)-1], r.name+"-B/watch")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(live[0]/live[1], "ratio")
	b.ReportMetric(live[0]/live[2], "go-ratio")
}

// watch opens watches, and returns when each has its header. What it returns ends
// them.
func (r *relay) watch(b *testing.B, protocol string, n int, token func(user string) string) (end func()) {
	b.Helper()
	perClient := 1
	if protocol == "h2" {
		perClient = h2Watches
	}
	tokens := make([]string, streamUsers)
	for i := range tokens {
		tokens[i] = token(fmt.Sprint("user-", i))
	}
	ctx, cancel := context.WithCancel(b.Context())
	var clients []*http.Client
	numbers := make(chan int)
	var wg sync.WaitGroup
	for i := 0; i < n; i += perClient {
		clients = append(clients, r.client(protocol))
	}
	for range 20 {
		wg.Go(func() {
			for i := range numbers {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/api/v1/pods?watch=true", nil)
				if err != nil {
					b.Error(err)
					continue
				}
				req.Header.Set("Authorization", "Bearer "+tokens[i%streamUsers])
				resp, err := clients[i/perClient].Do(req)
				if err != nil {
					b.Error(err)
				} else if resp.StatusCode != http.StatusOK {
					b.Errorf("%s: %s", r.name, resp.Status)
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
	return func() {
		cancel()
		for _, c := range clients {
			c.CloseIdleConnections()
		}
	}
}

var (
	heapLive  = regexp.MustCompile(`# HeapAlloc = (\d+)`)
	stackLive = regexp.MustCompile(`# Stack = (\d+)`)
)

// memory is what the process holds in heap and stacks, and what is resident.
func (r *relay) memory(b *testing.B) (live, resident int) {
	b.Helper()
	var text string
	for range 2 { // the second collection frees what finalizers held
		var err error
		if text, err = r.heap(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	for _, of := range []*regexp.Regexp{heapLive, stackLive} {
		found := of.FindStringSubmatch(text)
		if found == nil {
			b.Fatalf("no %v in the profile of %s", of, r.name)
		}
		n, err := strconv.Atoi(found[1])
		if err != nil {
			b.Fatal(err)
		}
		live += n
	}
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", r.pid))
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		b.Fatal(err)
	}
	return live, pages * os.Getpagesize()
}

// BenchmarkSessions is the CPU time of 100 upgraded connections that carry short
// messages, as an exec with a terminal does.
func BenchmarkSessions(b *testing.B) {
	f := newFixture(b)
	for range b.N {
		relays := []*relay{f.proxyauth.relay(), f.stockHTTP1.relay(), f.plain.relay()}
		open := map[*relay][]session{}
		for _, r := range relays {
			open[r] = r.sessions(b, f.token)
			r.converse(b, open[r])
		}
		samples := map[*relay][]float64{}
		for round := range sessionRounds {
			for i := range relays {
				r := relays[(i+round)%len(relays)]
				before := cpuTime(b, r.pid)
				r.converse(b, open[r])
				samples[r] = append(samples[r], float64((cpuTime(b, r.pid)-before).Nanoseconds())/1000/sessions/messages)
			}
		}
		against := func(other *relay) float64 {
			ratios := make([]float64, sessionRounds)
			for i := range ratios {
				ratios[i] = samples[relays[0]][i] / samples[other][i]
			}
			return median(ratios)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(against(relays[1]), "ratio")
		b.ReportMetric(against(relays[2]), "go-ratio")
		for _, r := range relays {
			b.ReportMetric(median(samples[r]), r.name+"-µs/message")
		}
	}
}

// session is an upgraded connection.
type session struct {
	*tls.Conn
	in *bufio.Reader
}

// sessions opens upgraded connections, which end with the benchmark.
func (r *relay) sessions(b *testing.B, token func(user string) string) (list []session) {
	b.Helper()
	host, path, _ := strings.Cut(strings.TrimPrefix(r.url, "https://"), "/")
	for i := range sessions {
		conn, err := tls.Dial("tcp", host, &tls.Config{RootCAs: r.roots, MinVersion: tls.VersionTLS12})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "POST /%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n",
			strings.TrimPrefix(path+"/api/v1/namespaces/x/pods/y/exec?command=sh", "/"), host, token(fmt.Sprint("user-", i%streamUsers)))
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			b.Fatalf("%s: %+v, %v", r.name, resp, err)
		}
		list = append(list, session{conn, in})
	}
	return list
}

// converse sends the messages of a round on each session, one after another.
func (r *relay) converse(b *testing.B, list []session) {
	b.Helper()
	var wg sync.WaitGroup
	for _, s := range list {
		wg.Go(func() {
			message := make([]byte, messageSize)
			for range messages {
				if _, err := s.Write(message); err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(s.in, message); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
