package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Client is an HTTP client with what the kubeconfig holds, for what a test does often:
// a kubectl takes more CPU time than the apiserver that it asks.
func (k Kubectl) Client() (client *http.Client, server string, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", k.Kubeconfig)
	if err != nil {
		return nil, "", fmt.Errorf("reading a kubeconfig: %w", err)
	}
	if k.Namespaces != nil {
		config.Dial = k.Namespaces.DialContext
	}
	client, err = rest.HTTPClientFor(config)
	return client, config.Host, err
}

// MustApply does what `kubectl apply --server-side --force-conflicts` does. A manifest
// without a namespace is of a kind without namespaces.
func (k Kubectl) MustApply(tb testing.TB, manifests string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	if err := k.apply(ctx, manifests); err != nil {
		tb.Fatal(err)
	}
}

func (k Kubectl) apply(ctx context.Context, manifests string) error {
	client, server, err := k.Client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096); ; {
		object := new(unstructured.Unstructured)
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading manifests: %w", err)
		case len(object.Object) == 0:
			continue
		}
		if err := applyObject(ctx, client, server, object); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

func applyObject(ctx context.Context, client *http.Client, server string, object *unstructured.Unstructured) error {
	body, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	url := server + objectPath(object) + "?fieldManager=kubectl&force=true&fieldValidation=Strict"
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/apply-patch+yaml")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return err
}

// objectPath is that of an object at an apiserver.
func objectPath(object *unstructured.Unstructured) string {
	kind := object.GroupVersionKind()
	path := "/api/" + kind.Version
	if kind.Group != "" {
		path = "/apis/" + kind.Group + "/" + kind.Version
	}
	if namespace := object.GetNamespace(); namespace != "" {
		path += "/namespaces/" + namespace
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return path + "/" + resource.Resource + "/" + object.GetName()
}
