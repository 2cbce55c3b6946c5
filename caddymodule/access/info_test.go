package access

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Info is what two readings of a request are compared by.
type Info struct {
	IsResource, Invalid                                             bool
	Verb, APIGroup, Version, Namespace, Resource, Subresource, Name string
}

func infoOf(ri *request.RequestInfo, err error) Info {
	return Info{
		IsResource: ri.IsResourceRequest, Verb: ri.Verb, APIGroup: ri.APIGroup, Version: ri.APIVersion,
		Namespace: ri.Namespace, Resource: ri.Resource, Subresource: ri.Subresource, Name: ri.Name,
		Invalid: err != nil,
	}
}

// apiserverInfo is what a kube-apiserver reads in a request line.
func apiserverInfo(method, raw, rawQuery string) (Info, error) {
	target := raw
	if rawQuery != "" {
		target += "?" + rawQuery
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return Info{}, err
	}
	return infoOf(apiserver.NewRequestInfo(&http.Request{Method: method, URL: u})), nil
}

func ourInfo(t *testing.T, method, raw, rawQuery string) Info {
	t.Helper()
	p, err := ParsePath(raw)
	if err != nil {
		t.Fatal(err)
	}
	query, _ := url.ParseQuery(rawQuery)
	return infoOf(p.Info(method, query))
}

var infoPaths = []string{
	"/", "/version", "/healthz", "/livez/ping", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/metrics", "/logs/kube-apiserver.log",
	"/api", "/api/", "/api/v1", "/api/v1/", "/apis", "/apis/apps", "/apis/apps/v1", "/apis/apps/v1/", "/.well-known/openid-configuration",
	"/api/v1/pods", "/api/v1/pods/", "/api/v1/namespaces", "/api/v1/namespaces/", "/api/v1/namespaces/a", "/api/v1/namespaces/a/",
	"/api/v1/namespaces/a/status", "/api/v1/namespaces/a/finalize", "/api/v1/namespaces/a/status/x", "/api/v1/namespaces/a/pods",
	"/api/v1/namespaces/a/pods/", "/api/v1/namespaces/a/pods/x", "/api/v1/namespaces/a/pods/x/", "/api/v1/namespaces/a/pods/x/exec",
	"/api/v1/namespaces/a/pods/x/log/", "/api/v1/namespaces/a/pods/x/attach", "/api/v1/namespaces/a/pods/x/portforward",
	"/api/v1/namespaces/a/pods/x/proxy", "/api/v1/namespaces/a/pods/x/proxy/", "/api/v1/namespaces/a/pods/x/proxy/a/b/c",
	"/api/v1/namespaces/a/services/https:s:443/proxy/x", "/api/v1/nodes/n/proxy/logs", "/api/v1/namespaces/namespaces/namespaces",
	"/api/v1/namespaces/a/namespaces/b", "/api/v1/watch", "/api/v1/watch/", "/api/v1/proxy", "/api/v1/watch/pods", "/api/v1/watch/pods/x",
	"/api/v1/watch/namespaces", "/api/v1/watch/namespaces/a", "/api/v1/watch/namespaces/a/pods", "/api/v1/watch/namespaces/a/pods/x",
	"/api/v1/watch/namespaces/a/pods/x/exec", "/api/v1/proxy/nodes/n", "/api/v1/proxy/namespaces/a/pods/x/exec", "/api/v1/proxy/nodes/n/exec",
	"/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/a/deployments/d", "/apis/apps/v1/namespaces/a/deployments/d/scale",
	"/apis/apps/v1/watch", "/apis/apps/v1/watch/namespaces/a/deployments/d", "/apis/apps/watch/x", "/apis/watch/v1/x",
	"/apis/example.org/v1alpha1/widgets", "/apis/example.org/v1alpha1/namespaces/a/widgets/w/status", "/apis/a/b/c/d/e/f/g/h/i",
	// Escapes: %2F is a separator, letters may be encoded, decoded once.
	"/api/v1/namespaces/a/pods/x%2Fexec", "/api/v1/namespaces/a/pods%2fx%2fexec", "/api/v1/namespaces/a/%70ods/x/%65xec", "%2Fapi/v1/pods",
	"/%61pi/v1/pods", "/api%2Fv1%2Fpods", "/api/v1/namespaces/a/pods/x%252Fexec", "/api/v1/namespaces/a/pods/x%2F", "/api/v1/pods%2F",
	"/api/v1/namespaces/a/pods/x%20y", "/api/v1/namespaces/a/pods/x+y", "/api/v1/namespaces/a/pods/%C3%A9", "/api/v1/namespaces/a/pods/é",
	"/api/v1/namespaces/a/pods/x%00", "/api/v1/namespaces/a/pods/x%3Fwatch=true", "/api/v1/pods;x=y", "/api/v1/namespaces/a/pods/x#y",
	"/api/v1/namespaces/a/pods/...", "/api/v1/namespaces/a/pods/.x", "/api/v1/namespaces/a/pods/%252e%252e/x", "/api/v1\\namespaces\\x",
	// Empty segments, which the apiserver reads and then finds nothing for.
	"//", "//api/v1/pods", "/api//v1/pods", "/api/v1//pods", "/api/v1/pods//", "/api/v1/namespaces//pods", "/api/v1/namespaces//pods/x",
	"/api/v1/namespaces/a//x", "/api/v1/namespaces/a/pods//exec", "/apis//v1/x", "/apis/apps//x", "/api/v1/watch//pods", "/api/v1/%2Fpods",
	// Case matters.
	"/API/v1/pods", "/api/V1/Pods", "/api/v1/Namespaces/a/pods", "/api/v1/WATCH/pods", "/api/v1/namespaces/a/Status",
}

var infoQueries = []string{
	"", "watch", "watch=", "watch=true", "watch=1", "watch=false", "watch=0", "watch=False", "watch=FALSE", "watch=no",
	"watch=false&watch=true", "watch=true&watch=false", "Watch=true", "limit=500", "limit=x", "limit=x&watch=true", "limit=x&watch=false",
	"fieldSelector=metadata.name%3Dx", "fieldSelector=metadata.name%3D%3Dx&watch=true", "fieldSelector=metadata.name!%3Dx",
	"fieldSelector=metadata.name%3Dx,metadata.namespace%3Da", "fieldSelector=metadata.name%3Da%2Fb", "fieldSelector=metadata.name%3D..",
	"fieldSelector=metadata.name%3D", "fieldSelector=", "fieldSelector=,,,", "fieldSelector=metadata.name%3Dx&limit=y", "fieldSelector=metadata.name%3Dx&timeoutSeconds=y&watch=true",
	"fieldSelector=metadata.name%3Dx&fieldSelector=metadata.name%3Dy", "labelSelector=a%3Db", "labelSelector=((&fieldSelector=metadata.name%3Dx",
	"watch=%zz", "%zz=1&watch=true", "watch=true;x", "dryRun=All", "command=sh&stdin=true",
}

var infoMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "MKCOL", ""}

// URL-4: the same request to the proxy and to the apiserver.
func TestInfoAgreesWithApiserver(t *testing.T) {
	for _, raw := range infoPaths {
		t.Run(raw, func(t *testing.T) {
			if raw[0] != '/' {
				if _, err := ParsePath(raw); !errors.Is(err, errNoPath) {
					t.Errorf("ParsePath: %v", err)
				}
				return
			}
			for _, method := range infoMethods {
				for _, query := range infoQueries {
					want, err := apiserverInfo(method, raw, query)
					if err != nil {
						t.Fatal(err)
					}
					if got := ourInfo(t, method, raw, query); got != want {
						t.Errorf("%s ?%s:\n got %+v\nwant %+v", method, query, got, want)
					}
				}
			}
		})
	}
}

func TestFollows(t *testing.T) {
	for target, want := range map[string]bool{
		"/api/v1/pods?watch=true":                                  true,
		"/api/v1/pods?watch":                                       true,
		"/api/v1/pods?watch=0":                                     false,
		"/api/v1/pods?watch=False":                                 false,
		"/api/v1/pods":                                             false,
		"/api/v1/namespaces/a/pods/x?watch=true":                   false,
		"/api/v1/%77atch/pods":                                     true,
		"/apis/apps/v1/watch/namespaces/a/deployments/d":           true,
		"/apis/apps/v1/namespaces/watch/deployments":               false,
		"/api/v1/namespaces/a/pods/x/log?follow=true":              true,
		"/api/v1/namespaces/a/pods/x%2Flog?follow=1":               true,
		"/api/v1/namespaces/a/pods/x/log?follow=false&follow=true": false,
		"/api/v1/namespaces/a/pods/x/log":                          false,
		"/api/v1/namespaces/a/configmaps/x?follow=true":            false,
		"/apis/example.org/v1/namespaces/a/pods/x/log?follow=1":    false,
		"/version?watch=true":                                      false,
		"/api/v1/pods?w%61tch=true":                                true,
		"/api/v1/pods?limit=x&watch=true":                          true,
		"/api/v1/pods?limit=500":                                   false,
		"/api/v1/watch?watch=true":                                 false,
	} {
		raw, rawQuery, _ := strings.Cut(target, "?")
		p, err := ParsePath(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Follows("GET", rawQuery); got != want {
			t.Errorf("%s: %t", target, got)
		}
		if p.Follows("POST", rawQuery) && !strings.Contains(p.Decoded, "/watch/") {
			t.Errorf("POST %s follows", raw)
		}
	}
}

func FuzzPathAgreesWithApiserver(f *testing.F) {
	for i, raw := range infoPaths {
		f.Add(infoMethods[i%len(infoMethods)], raw, infoQueries[i%len(infoQueries)])
	}
	f.Fuzz(func(t *testing.T, method, raw, query string) {
		if strings.Contains(raw, "?") || !isASCII(query) {
			return
		}
		p, err := ParsePath(raw)
		want, wantErr := apiserverInfo(method, raw, query)
		if err != nil {
			segments := strings.Split(decoded(raw), "/")
			switch {
			case errors.Is(err, errDotSegment):
				if !slices.Contains(segments, ".") && !slices.Contains(segments, "..") {
					t.Fatal("refused a path without dot segment")
				}
			case errors.Is(err, errBadEscape):
				if wantErr == nil {
					t.Fatal("refused what the apiserver reads")
				}
			}
			return
		}
		if segments := strings.Split(p.Decoded, "/"); slices.Contains(segments, ".") || slices.Contains(segments, "..") {
			t.Fatal("a dot segment passed")
		}
		if wantErr != nil {
			return // The apiserver, and the listener before us, answers 400.
		}
		values, _ := url.ParseQuery(query)
		if got := infoOf(p.Info(method, values)); got != want {
			t.Errorf("\n got %+v\nwant %+v", got, want)
		}
	})
}

func decoded(raw string) string {
	s, _ := url.PathUnescape(raw)
	return s
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= 0x80 }) < 0 && !strings.Contains(s, "%")
}

// An ordinary request costs no allocation, and a list with parameters those of
// reading them.
func TestFollowsIsCheap(t *testing.T) {
	for target, most := range map[string]float64{
		"/api/v1/namespaces/team-a/pods/web-0":          0,
		"/apis/apps/v1/deployments":                     0,
		"/api/v1/pods?limit=500&resourceVersion=0":      4,
		"/api/v1/namespaces/team-a/pods%2Fweb-0?pretty": 6,
	} {
		raw, rawQuery, _ := strings.Cut(target, "?")
		if n := testing.AllocsPerRun(100, func() {
			p, err := ParsePath(raw)
			if err != nil || p.Follows("GET", rawQuery) {
				t.Fatal(err)
			}
		}); n > most {
			t.Errorf("%s: %v allocations", target, n)
		}
	}
}

func BenchmarkFollows(b *testing.B) {
	for name, target := range map[string]string{
		"get":   "/api/v1/namespaces/team-a/pods/web-0",
		"list":  "/api/v1/pods?limit=500",
		"watch": "/api/v1/pods?watch=true&resourceVersion=100",
		"log":   "/api/v1/namespaces/team-a/pods/web-0/log?follow=true",
	} {
		raw, rawQuery, _ := strings.Cut(target, "?")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, err := ParsePath(raw)
				if err != nil {
					b.Fatal(err)
				}
				p.Follows("GET", rawQuery)
			}
		})
	}
}
