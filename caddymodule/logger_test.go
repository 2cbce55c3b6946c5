package caddymodule

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// SIG-3: what client-go sends and receives is in no log, at the most verbose
// level there is; the rest of what it has to say is.
func TestKlogWritesNoBodies(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	before := process.Log.Swap(zap.New(core))
	t.Cleanup(func() { process.Log.Swap(before) })

	const sent, received = "c2VudC1zZWNyZXQ=", "cmVjZWl2ZWQtc2VjcmV0"
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"key":"` + received + `"}}`))
	}))
	defer hub.Close()
	client, err := typedcorev1.NewForConfig(&rest.Config{Host: hub.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"key": []byte("sent-secret")}}
	if _, err := client.Secrets("x").Create(context.Background(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	logger := klog.Background().WithName("part").WithValues("key", "value")
	logger.V(5).Info("too verbose")
	logger.V(2).Info("worth telling")
	told := false
	for _, entry := range logs.All() {
		text := entry.Message
		for _, value := range entry.ContextMap() {
			if s, ok := value.(string); ok {
				text += " " + s
			}
		}
		if strings.Contains(text, sent) || strings.Contains(text, received) || strings.Contains(text, "Body") || strings.Contains(text, "too verbose") {
			t.Errorf("the log has %q", text)
		}
		told = told || strings.Contains(text, "worth telling")
	}
	if !told {
		t.Error("the log lacks what is worth telling")
	}
}
