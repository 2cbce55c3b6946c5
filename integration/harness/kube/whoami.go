package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReviewPath is where an apiserver says who is asking.
const ReviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// Review is the answer to a SelfSubjectReview.
type Review struct {
	Code   int
	Header http.Header
	// User is who the apiserver saw; empty unless Code is 201.
	User authenticationv1.UserInfo
	// Status is the refusal when Code is another and the body is one.
	Status metav1.Status
}

// WhoAmI sends a SelfSubjectReview to base, an apiserver or a cluster behind
// the proxy, with these header lines, names as they are written.
func WhoAmI(ctx context.Context, client *http.Client, base string, header http.Header) (*Review, error) {
	const body = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+ReviewPath, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("asking who I am: %w", err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking who I am: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("asking who I am: %w", err)
	}
	r := &Review{Code: resp.StatusCode, Header: resp.Header}
	if resp.StatusCode != http.StatusCreated {
		// Not every refusal is a Status.
		_ = json.Unmarshal(answer, &r.Status)
		return r, nil
	}
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return nil, fmt.Errorf("reading who I am: %w", err)
	}
	r.User = review.Status.UserInfo
	return r, nil
}

// Bearer is the header with that bearer token.
func Bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
