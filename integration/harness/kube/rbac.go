package kube

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"

	authenticationv1 "k8s.io/api/authentication/v1"
)

var errRolesMissing = errors.New("the default roles are not there yet")

// rbacReady returns nil once the default roles exist, are filled in, and the
// authorizer has seen them.
func (a *APIServer) rbacReady(ctx context.Context) error {
	client, err := rbacclient.NewForConfig(a.AdminConfig())
	if err != nil {
		return err
	}
	if _, err := client.ClusterRoleBindings().Get(ctx, "system:basic-user", metav1.GetOptions{}); err != nil {
		return err
	}
	if err := aggregate(ctx, client); err != nil {
		return err
	}
	// An ordinary user may ask who they are: the authorizer's informers have
	// caught up.
	cfg := a.AdminConfig()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "readiness"}
	ordinary, err := authenticationclient.NewForConfig(cfg)
	if err != nil {
		return err
	}
	_, err = ordinary.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// aggregate does once what the controller manager's ClusterRole aggregation
// does: without it view, edit and admin allow nothing. Roles depend on each
// other (edit aggregates what view does), hence the repetition.
func aggregate(ctx context.Context, client rbacclient.RbacV1Interface) error {
	for range 4 {
		list, err := client.ClusterRoles().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errRolesMissing
		}
		changed := false
		for i := range list.Items {
			role := &list.Items[i]
			if role.AggregationRule == nil {
				continue
			}
			rules, err := collect(role, list.Items)
			if err != nil {
				return err
			}
			if len(rules) == 0 {
				return errRolesMissing
			}
			if reflect.DeepEqual(rules, role.Rules) {
				continue
			}
			changed = true
			role.Rules = rules
			if _, err := client.ClusterRoles().Update(ctx, role, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("filling in ClusterRole %s: %w", role.Name, err)
			}
		}
		if !changed {
			return nil
		}
	}
	return nil
}

func collect(role *rbacv1.ClusterRole, all []rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.Name != role.Name && selector.Matches(labels.Set(other.Labels)) {
				rules = append(rules, other.Rules...)
			}
		}
	}
	return rules, nil
}
