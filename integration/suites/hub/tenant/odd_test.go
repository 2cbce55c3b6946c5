package tenant

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// almostMiB is about what an apiserver takes of one object.
const almostMiB = 1000 << 10

// Objects as large and as odd as an apiserver takes them delay no other object, and
// their contents appear nowhere.
func oddObjects(w *world) {
	up := rawserver.Start(w, rawserver.Options{NoIdentity: true})
	full := func(text string) string { return strings.Repeat(text, almostMiB/len(text)) }
	contents := map[string]string{
		"many-cas":  full(string(up.ServerCA.PEM)),
		"a-bundle":  strings.Repeat(string(up.ServerCA.PEM), 300),
		"begins":    full("-----BEGIN CERTIFICATE-----\n"),
		"headers":   full("-----BEGIN CERTIFICATE-----\nA: b\n"),
		"blocks":    full("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
		"whispered": whispered[0] + full(whispered[0]),
	}
	want := map[string]string{"a-bundle": "True/Serving"}
	var objects []any
	add := func(name string, cert *v1.CertSource) {
		c := w.passthrough(mine, "odd-"+name, up)
		c.Spec.Cert = cert
		objects = append(objects, c)
	}
	for name, text := range contents {
		objects = append(objects, proxy.Secret(mine, "odd-"+name, map[string]string{"ca.crt": text}))
		add(name, &v1.CertSource{Secret: keyRef("", "odd-"+name, "ca.crt")})
	}
	binary := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "odd-binary"},
		BinaryData: map[string][]byte{"ca.crt": []byte("\xff\xfe\x00" + whispered[0] + "\xc3\x28"), "good": up.ServerCA.PEM},
	}
	objects = append(objects, binary)
	add("binary", &v1.CertSource{ConfigMap: keyRef("", "odd-binary", "ca.crt")})
	add("binary-good", &v1.CertSource{ConfigMap: keyRef("", "odd-binary", "good")})
	add("no-key", &v1.CertSource{ConfigMap: keyRef("", "odd-binary", "\u202enone")})
	want["binary-good"] = "True/Serving"
	inline := strings.Repeat("QUFB", 131072/4)
	add("inline", &v1.CertSource{Cert: &inline})
	want["inline"] = "False/InvalidSpec"
	huge := w.passthrough(mine, "odd-huge", up)
	huge.Annotations = map[string]string{"team-a.example.com/huge": strings.Repeat("x", 250<<10)}
	huge.Status = &v1.ProxyKubeApiStatus{Error: &inline}
	objects = append(objects, huge)
	want["huge"] = "True/Serving"

	var all sync.WaitGroup
	all.Go(func() { w.apply(objects...) })
	for range 10 {
		w.othersServe()
		time.Sleep(100 * time.Millisecond)
	}
	all.Wait()
	for _, o := range objects {
		c, ok := o.(*v1.ProxyKubeApi)
		if !ok {
			continue
		}
		reason, known := want[strings.TrimPrefix(c.Name, "odd-")]
		if !known {
			reason = "False/ReferenceNotFound"
		}
		if message := hub.Message(w.hub.WaitReady(w, mine, c.Name, reason), "Ready"); len(message) > 4096 || strings.ContainsRune(message, '\u202e') {
			w.Errorf("%s: a message of %d bytes: %.200q", c.Name, len(message), message)
		}
		w.othersServe()
	}
}

// Expressions that would take for ever are refused, or end with the request
// that they were for, while others are served.
func expressions(w *world) {
	up := rawserver.Start(w, rawserver.Options{NoIdentity: true})
	nested := func(depth int) string {
		e := "size(claims.sub)"
		for i := range depth {
			e = fmt.Sprintf("[0,1,2,3,4,5,6,7,8,9].map(v%d, %s).size()", i, e)
		}
		return "string(" + e + ")"
	}
	bombs := map[string]string{
		"nested":  nested(9),
		"long":    nested(7),
		"strings": "claims.sub" + strings.Repeat(".replace('', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')", 8),
		"regex":   "string(claims.sub.matches('" + strings.Repeat("(a?)", 60) + strings.Repeat("a", 60) + "'))",
		"deep":    strings.Repeat("(", 200) + "claims.sub" + strings.Repeat(")", 200),
		"ternary": strings.Repeat("true ? ", 100) + "claims.sub" + strings.Repeat(" : ''", 100),
	}
	var objects []any
	for name, bomb := range bombs {
		c := w.passthrough(mine, "cel-"+name, up)
		c.Spec.AuthConfig.JWT[0].ClaimMappings.Username = &v1.PrefixedClaimOrExpression{Expression: &bomb}
		objects = append(objects, c)
	}
	w.apply(objects...)
	for name := range bombs {
		s := w.hub.WaitStatus(w, mine, "cel-"+name, "Ready", hasCondition("Ready"))
		w.Logf("%s: %s %.200s", name, hub.Condition(s, "Ready"), hub.Message(s, "Ready"))
	}
	var all sync.WaitGroup
	for name := range bombs {
		for range 4 {
			all.Go(func() {
				start := time.Now()
				client := w.px.Client("h2")
				defer client.CloseIdleConnections()
				r, err := kube.WhoAmI(w.Context(), client, w.px.ClusterURL(mine, "cel-"+name), kube.Bearer(w.token))
				if took := time.Since(start); err != nil || took > 10*time.Second {
					w.Errorf("%s: %+v, %v after %v", name, r, err, took)
				}
			})
		}
	}
	for range 10 {
		w.othersServe()
		time.Sleep(50 * time.Millisecond)
	}
	all.Wait()
	for name, code := range map[string]int{"nested": http.StatusServiceUnavailable, "long": http.StatusUnauthorized} {
		if got := w.get(mine, "cel-"+name); got != code {
			w.Errorf("%s: %d, want %d", name, got, code)
		}
	}
}
