package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

const reviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// whoAmI asks an apiserver behind the proxy who it sees.
func whoAmI(ctx context.Context, client *http.Client, url, token string) (authenticationv1.UserInfo, error) {
	var review authenticationv1.SelfSubjectReview
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body := []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+reviewPath, bytes.NewReader(body))
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		return authenticationv1.UserInfo{}, fmt.Errorf("answered %s", res.Status)
	}
	err = json.NewDecoder(res.Body).Decode(&review)
	return review.Status.UserInfo, err
}

// caller is one client with its own user and group, of one cluster.
type caller struct {
	cluster, prefix, user, group, token string
}

// callers makes clients that take turns between clusters: neighbours differ
// in cluster and identity.
func callers(n int, clusters ...string) []caller {
	var all []caller
	for i := range n {
		c := caller{cluster: clusters[i%len(clusters)], user: fmt.Sprintf("user-%d", i), group: fmt.Sprintf("group-%d", i)}
		c.prefix = c.cluster + ":"
		c.token = provider().Token(oidc.Alice, map[string]any{"preferred_username": c.user, "groups": []string{c.group}})
		all = append(all, c)
	}
	return all
}

// Two apiservers with authorities of their own at once: each sees the
// identities of its own callers alone, under its own prefix, over its own
// certificate. A certificate that crossed would be a 401 at the other one.
func TestNothingCrossesBetweenApiservers(t *testing.T) {
	t.Parallel()
	manifests := map[string]string{}
	names := []string{"red", "blue"}
	for n, api := range real.Get(t) {
		name := names[n]
		manifests[name+".yaml"] = proxy.Manifests(
			proxy.FrontProxyCluster(namespace, name, api.URL, api.PKI.ServerCA, name+":", proxy.Authenticator(provider())),
			proxy.FrontProxySecret(namespace, name, api.URL, pki.Must(api.PKI.FrontProxyCA.Client(kube.FrontProxyName))))
	}
	px := proxy.Start(t, proxy.Options{LogLevel: "INFO", Manifests: manifests})
	for _, name := range names {
		px.MustServe(t, namespace, name)
	}
	all := callers(40, names...)
	l := startLoad(t, px, len(all), func(ctx context.Context, client *http.Client, n int) error {
		c := all[n]
		got, err := whoAmI(ctx, client, px.URL+target(c.cluster, ""), c.token)
		if err != nil {
			return err
		}
		want := []string{c.prefix + c.group, "system:authenticated"}
		if got.Username != c.prefix+c.user || !slices.Equal(got.Groups, want) || len(got.Extra) != 0 {
			return fmt.Errorf("%s of %s is seen as %v", c.user, c.cluster, got)
		}
		return nil
	})
	l.more(t, 2000)
	l.stop(t)
	t.Logf("%d reviews on two apiservers", l.answered.Load())
}

// The same at the level of certificates: six clusters, two of them at one
// apiserver, each with a certificate of its own. No request has the
// serial number, the identity or the target of another cluster.
func TestNoCertificateCrosses(t *testing.T) {
	t.Parallel()
	ups := []*rawserver.Server{upstream(t), upstream(t), upstream(t)}
	shared := rawserver.Start(t, rawserver.Options{Handler: apiserver, ServerCA: ups[0].ServerCA, FrontProxyCA: ups[0].FrontProxyCA})
	place := map[string]*rawserver.Server{"c0": ups[0], "c1": ups[1], "c2": ups[2], "c3": shared, "c4": ups[0], "c5": shared}
	manifests := map[string]string{}
	var names []string
	for n := range len(place) {
		name := fmt.Sprintf("c%d", n)
		names = append(names, name)
		up := place[name]
		manifests[name+".yaml"] = proxy.Manifests(
			proxy.FrontProxyCluster(namespace, name, up.URL, up.ServerCA, name+":", proxy.Authenticator(provider())),
			proxy.FrontProxySecret(namespace, name, up.URL, up.FrontProxy(int64(n+1))))
	}
	px := proxy.Start(t, proxy.Options{LogLevel: "INFO", Manifests: manifests})
	for _, name := range names {
		px.MustServe(t, namespace, name)
	}
	all := callers(60, names...)
	l := startLoad(t, px, len(all), func(ctx context.Context, client *http.Client, n int) error {
		c := all[n]
		// The path says who asks, so that the upstream's record can be judged.
		got, err := whoAmI(ctx, client, px.URL+target(c.cluster, "/as/"+c.cluster+"/"+c.user), c.token)
		if err == nil && got.Username != c.prefix+c.user {
			err = fmt.Errorf("%s of %s is seen as %v", c.user, c.cluster, got)
		}
		return err
	})
	l.more(t, 2000)
	// Three certificates are renewed meanwhile.
	for n, name := range names[:3] {
		up := place[name]
		px.MustWrite(t, name+".yaml",
			proxy.FrontProxyCluster(namespace, name, up.URL, up.ServerCA, name+":", proxy.Authenticator(provider())),
			proxy.FrontProxySecret(namespace, name, up.URL, up.FrontProxy(int64(n+101))))
	}
	for _, name := range names[:3] {
		n := slices.Index(names, name)
		eventually(t, name+" has its new serial", renewal, func() error {
			for _, r := range place[name].Requests() {
				if r.Serial.Int64() == int64(n+101) {
					return nil
				}
			}
			return fmt.Errorf("not among %d requests", len(place[name].Requests()))
		})
	}
	l.more(t, 1000)
	l.stop(t)

	total := 0
	for _, up := range append(ups, shared) {
		for _, r := range up.Requests() {
			rest, ok := strings.CutPrefix(r.Target, "/as/")
			if !ok {
				continue
			}
			total++
			name, user, _ := strings.Cut(strings.TrimSuffix(rest, reviewPath), "/")
			n := int64(slices.Index(names, name))
			if place[name] != up {
				t.Errorf("%s reached another apiserver", r)
			}
			if s := r.Serial.Int64(); s != n+1 && s != n+101 {
				t.Errorf("%s has serial %d", r, s)
			}
			if r.Identity == nil || r.Identity.User != name+":"+user || len(r.Identity.Groups) != 1 || !strings.HasPrefix(r.Identity.Groups[0], name+":group-") {
				t.Errorf("%s has the identity %+v", r, r.Identity)
			}
		}
	}
	t.Logf("%d requests on four apiservers for six clusters", total)
}
