package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	harness "github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

// tokenLimit bounds a login.
const tokenLimit = 30 * time.Second

// redirectURL is where a browser would come back to; no server listens there.
const redirectURL = "http://127.0.0.1/callback"

// printToken is the subcommand: it logs in as a user, as a person with a
// browser would, and prints the id_token, with -exec as an ExecCredential.
func printToken(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("demo token", flag.ExitOnError)
	issuer := flags.String("issuer", "", "the provider")
	ca := flags.String("ca", "", "file with the provider's CA")
	client := flags.String("client", "", "client id")
	user := flags.String("user", "alice", "who logs in")
	plugin := flags.Bool("exec", false, "print an ExecCredential for kubectl")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tokenLimit)
	defer cancel()
	httpClient, err := clientTrusting(*ca)
	if err != nil {
		return err
	}
	token, expires, err := login(oidc.ClientContext(ctx, httpClient), httpClient, *issuer, *client, *user)
	if err != nil {
		return fmt.Errorf("logging in as %s: %w", *user, err)
	}
	if !*plugin {
		_, err := fmt.Fprintln(out, token)
		return err
	}
	return json.NewEncoder(out).Encode(clientauthentication.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthentication.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status: &clientauthentication.ExecCredentialStatus{
			Token: token, ExpirationTimestamp: &metav1.Time{Time: expires},
		},
	})
}

func clientTrusting(caFile string) (*http.Client, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("reading the provider's CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("reading the provider's CA: no certificate")
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}, nil
}

// login is the authorization code flow with PKCE. ctx carries the client too,
// for the libraries.
func login(ctx context.Context, client *http.Client, issuer, clientID, user string) (token string, expires time.Time, err error) {
	provider, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return "", expires, err
	}
	cfg := oauth2.Config{
		ClientID: clientID, Endpoint: provider.Endpoint(), RedirectURL: redirectURL,
		Scopes: []string{oidc.ScopeOpenID, "profile", "email", "groups"},
	}
	verifier, state := oauth2.GenerateVerifier(), rand.Text()
	back, err := harness.Browse(ctx, client, issuer, cfg.AuthCodeURL(state, oauth2.S256ChallengeOption(verifier)), user)
	if err != nil {
		return "", expires, err
	}
	if back.Query().Get("state") != state {
		return "", expires, errors.New("the provider answered another request")
	}
	answer, err := cfg.Exchange(ctx, back.Query().Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		return "", expires, err
	}
	token, _ = answer.Extra("id_token").(string)
	verified, err := provider.Verifier(&oidc.Config{ClientID: clientID}).Verify(ctx, token)
	if err != nil {
		return "", expires, err
	}
	return token, verified.Expiry, nil
}
