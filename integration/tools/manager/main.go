// Command manager is an ordinary controller-runtime manager with leader election,
// as operators have it. Its controller copies each ConfigMap with the label
// copy=yes, by server-side apply, to <name>-copy, and keeps a finalizer on it.
// The tests run two of them through the proxy.
//
//	manager <namespace> <identity>
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	finalizer = "clients.example.com/copy"
	owner     = "manager"
)

var errUsage = errors.New("usage: manager <namespace> <identity>")

func main() {
	ctrl.SetLogger(klog.Background()) // to standard error
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	namespace, identity := args[0], args[1]
	cfg, err := config.GetConfig() // from KUBECONFIG
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	manager, err := ctrl.NewManager(cfg, ctrl.Options{
		LeaderElection: true, LeaderElectionID: "clients.example.com", LeaderElectionNamespace: namespace,
		LeaderElectionReleaseOnCancel: true,
		Cache: cache.Options{
			DefaultNamespaces:    map[string]cache.Config{namespace: {}},
			DefaultLabelSelector: labels.SelectorFromSet(labels.Set{"copy": "yes"}),
		},
		Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	err = ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(&copier{manager.GetClient(), identity})
	if err != nil {
		return fmt.Errorf("making the controller: %w", err)
	}
	go func() {
		<-manager.Elected()
		fmt.Println(identity, "leads")
	}()
	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	fmt.Println(identity, "ended")
	return nil
}

// copier is the controller.
type copier struct {
	client.Client
	identity string
}

// Reconcile copies one ConfigMap, or removes its copy.
func (c *copier) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var original corev1.ConfigMap
	if err := c.Get(ctx, r.NamespacedName, &original); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	name := original.Name + "-copy"
	if original.DeletionTimestamp != nil {
		return ctrl.Result{}, c.remove(ctx, &original, name)
	}
	if controllerutil.AddFinalizer(&original, finalizer) {
		return ctrl.Result{}, c.Update(ctx, &original) // which calls again
	}
	data := map[string]string{"text": original.Data["text"], "by": c.identity}
	err := c.Apply(ctx, applycorev1.ConfigMap(name, original.Namespace).WithData(data), client.FieldOwner(owner), client.ForceOwnership)
	if err == nil {
		fmt.Println(c.identity, "copied", original.Name, original.Data["text"])
	}
	return ctrl.Result{}, err
}

func (c *copier) remove(ctx context.Context, original *corev1.ConfigMap, name string) error {
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: original.Namespace, Name: name}}
	if err := c.Delete(ctx, old); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	controllerutil.RemoveFinalizer(original, finalizer)
	if err := c.Update(ctx, original); err != nil {
		return err
	}
	fmt.Println(c.identity, "removed", original.Name)
	return nil
}
