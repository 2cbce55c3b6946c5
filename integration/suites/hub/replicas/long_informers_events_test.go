//go:build long

package replicas

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"
)

// informersNamespace holds the objects that come and go.
const informersNamespace = "default"

// podTemplate is what workloads run: nothing, since there is no node.
const podTemplate = "{metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: none}]}}"

// resources are what the informers follow, with an object to make of each.
var resources = map[schema.GroupVersionResource]string{
	{Version: "v1", Resource: "configmaps"}:                                       "{kind: ConfigMap}",
	{Version: "v1", Resource: "secrets"}:                                          "{kind: Secret}",
	{Version: "v1", Resource: "services"}:                                         "{kind: Service, spec: {clusterIP: None, ports: [{port: 80}]}}",
	{Version: "v1", Resource: "endpoints"}:                                        "{kind: Endpoints}",
	{Version: "v1", Resource: "serviceaccounts"}:                                  "{kind: ServiceAccount}",
	{Version: "v1", Resource: "limitranges"}:                                      "{kind: LimitRange, spec: {limits: []}}",
	{Version: "v1", Resource: "podtemplates"}:                                     "{kind: PodTemplate, template: " + podTemplate + "}",
	{Version: "v1", Resource: "replicationcontrollers"}:                           "{kind: ReplicationController, spec: {replicas: 0, selector: {app: x}, template: " + podTemplate + "}}",
	{Version: "v1", Resource: "persistentvolumeclaims"}:                           "{kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}",
	{Group: "apps", Version: "v1", Resource: "deployments"}:                       "{kind: Deployment, spec: {replicas: 0, selector: {matchLabels: {app: x}}, template: " + podTemplate + "}}",
	{Group: "apps", Version: "v1", Resource: "replicasets"}:                       "{kind: ReplicaSet, spec: {replicas: 0, selector: {matchLabels: {app: x}}, template: " + podTemplate + "}}",
	{Group: "apps", Version: "v1", Resource: "statefulsets"}:                      "{kind: StatefulSet, spec: {replicas: 0, serviceName: x, selector: {matchLabels: {app: x}}, template: " + podTemplate + "}}",
	{Group: "apps", Version: "v1", Resource: "daemonsets"}:                        "{kind: DaemonSet, spec: {selector: {matchLabels: {app: x}}, template: " + podTemplate + "}}",
	{Group: "apps", Version: "v1", Resource: "controllerrevisions"}:               "{kind: ControllerRevision, revision: 1, data: {}}",
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}:        "{kind: Role}",
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}: "{kind: RoleBinding, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: x}}",
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}:      "{kind: NetworkPolicy, spec: {podSelector: {}}}",
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}:            "{kind: Ingress, spec: {defaultBackend: {service: {name: x, port: {number: 80}}}}}",
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}:            "{kind: PodDisruptionBudget, spec: {minAvailable: 1, selector: {matchLabels: {app: x}}}}",
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}:        "{kind: EndpointSlice, addressType: IPv4, endpoints: []}",
}

// followed is what informers have seen: the events of each object in their order.
type followed struct {
	mu     sync.Mutex
	events map[string][]string
}

// follow starts an informer for each resource, and waits until all have listed.
func follow(t *testing.T, config *rest.Config) *followed {
	t.Helper()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{events: map[string][]string{}}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, informersNamespace, nil)
	for gvr := range resources {
		_, err := factory.ForResource(gvr).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { f.note(gvr, "added", object) },
			UpdateFunc: func(_, object any) { f.note(gvr, "updated", object) },
			DeleteFunc: func(object any) { f.note(gvr, "deleted", object) },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	factory.Start(ctx.Done())
	synced, stop := context.WithTimeout(ctx, soon)
	defer stop()
	for gvr, ok := range factory.WaitForCacheSync(synced.Done()) {
		if !ok {
			t.Fatalf("%s was not listed", gvr)
		}
	}
	return f
}

func (f *followed) note(gvr schema.GroupVersionResource, verb string, object any) {
	if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
		verb, object = "deleted and missed", missed.Obj
	}
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		verb, o = fmt.Sprintf("%s as a %T", verb, object), new(unstructured.Unstructured)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := gvr.Resource + "/" + o.GetName()
	f.events[key] = append(f.events[key], verb+" "+o.GetResourceVersion())
}

func (f *followed) copy() map[string][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := maps.Clone(f.events)
	for key := range all {
		all[key] = slices.Clone(all[key])
	}
	return all
}

func (f *followed) total() (n int) {
	for _, events := range f.copy() {
		n += len(events)
	}
	return n
}

// catchUp waits until these informers have seen as much as the others, for a while.
func (f *followed) catchUp(direct *followed) {
	const stable = 2 * time.Second
	since, last := time.Now(), 0
	for deadline := time.Now().Add(soon); time.Now().Before(deadline) && time.Since(since) < stable; time.Sleep(50 * time.Millisecond) {
		if n := direct.total(); n != last || f.total() != n {
			since, last = time.Now(), n
		}
	}
}

// mustBeLike compares the events of each object.
func (f *followed) mustBeLike(t *testing.T, direct *followed) {
	t.Helper()
	got, want := f.copy(), direct.copy()
	different := 0
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if diff := cmp.Diff(want[key], got[key]); diff != "" {
			if different++; different <= 3 {
				t.Errorf("%s: events at the apiserver (-) and through the proxy (+):\n%s", key, diff)
			}
		}
	}
	if different > 0 || len(got) != len(want) {
		t.Errorf("%d of %d objects have other events; %d objects were seen", different, len(want), len(got))
	}
}

// writeEvery is the time between two writes.
const writeEvery = 50 * time.Millisecond

// write creates, changes and deletes objects of all resources until stop, which
// says how many writes there were.
func write(t *testing.T, config *rest.Config) (stop func() int) {
	t.Helper()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	written := 0
	done.Go(func() {
		ticker := time.NewTicker(writeEvery)
		defer ticker.Stop()
		for round := 0; ; round++ {
			for _, gvr := range slices.SortedFunc(maps.Keys(resources), func(a, b schema.GroupVersionResource) int {
				return strings.Compare(a.String(), b.String())
			}) {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
				if err := writeOne(ctx, client, gvr, round); err != nil && ctx.Err() == nil {
					t.Errorf("writing %s: %v", gvr.Resource, err)
					return
				}
				written++
			}
		}
	})
	t.Cleanup(cancel)
	return func() int { cancel(); done.Wait(); return written }
}

// writeOne is the next of the four writes that an object gets: made, changed twice
// and deleted. The next object has another name.
func writeOne(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, round int) error {
	objects := client.Resource(gvr).Namespace(informersNamespace)
	name := fmt.Sprintf("%s-%d", gvr.Resource, round/4%5)
	switch round % 4 {
	case 0:
		o := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(resources[gvr]), &o.Object); err != nil {
			return err
		}
		o.SetAPIVersion(gvr.GroupVersion().String())
		o.SetName(name)
		_, err := objects.Create(ctx, o, metav1.CreateOptions{})
		return err
	case 3:
		// The controllers of finalizers do not run.
		immediately := int64(0)
		background := metav1.DeletePropagationBackground
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := objects.Patch(ctx, name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		return objects.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &immediately, PropagationPolicy: &background})
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"round":"%d"}}}`, round)
	_, err := objects.Patch(ctx, name, "application/merge-patch+json", patch, metav1.PatchOptions{})
	return err
}
