package oidc

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"

	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
)

// issuerPath is the path of the issuer: providers with several realms have
// one, and code that joins URLs wrongly fails on it.
const issuerPath = "/realm"

// Paths below the issuer. The page at loginPath logs in the user that the
// request names.
const (
	discoveryPath  = "/.well-known/openid-configuration"
	tokenPath      = "/oauth/token"
	introspectPath = "/oauth/introspect"
	loginPath      = "/login"
)

// Options shape a provider; the zero value is the one of the CASES.
type Options struct {
	// Addr to listen on, 127.0.0.1:0 when empty. Its host is in the issuer.
	Addr string
	// Public is the address in the issuer, and so in every URL the provider
	// announces, when it is behind something; the one of Addr when empty.
	Public string
	// CA signs the serving certificate; nil makes one.
	CA *pki.CA
	// Users and Clients replace the default ones.
	Users   []User
	Clients []Client
	// LikeKanidm answers token exchanges as Kanidm does: always an access
	// token, whose issued_token_type is "AccessToken" instead of its URN, with
	// the scope and an id_token beside it.
	LikeKanidm bool
	// Demanding refuses a token exchange without one of grant_type,
	// subject_token, subject_token_type, client_id, audience and scope in the
	// form, and a client that authenticates otherwise than registered.
	Demanding bool
	// NoIntrospection is a provider without that endpoint.
	NoIntrospection bool
}

// Provider is a running OpenID provider.
type Provider struct {
	// Issuer is https://<address>:<port>/realm.
	Issuer string
	CA     *pki.CA

	options  Options
	keys     *keyRing
	storage  *storage
	provider *op.Provider
	library  http.Handler // provider below the issuer's path
	cert     tls.Certificate
	addr     string

	mu     sync.Mutex
	server *http.Server // nil while suspended
	calls  map[Endpoint]int
	faults map[Endpoint]Fault

	tokenCalls       []TokenCall
	exchangeAudience string
}

// New starts a provider.
func New(o Options) (*Provider, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Users == nil {
		o.Users = defaultUsers()
	}
	if o.Clients == nil {
		o.Clients = defaultClients()
	}
	if o.CA == nil {
		var err error
		if o.CA, err = pki.NewCA("idp-ca"); err != nil {
			return nil, err
		}
	}
	host, _, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("starting the OpenID provider: %w", err)
	}
	serving, err := o.CA.Server(host)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("starting the OpenID provider: %w", err)
	}
	if o.Public == "" {
		o.Public = listener.Addr().String()
	}
	p := &Provider{
		Issuer: "https://" + o.Public + issuerPath, CA: o.CA,
		options: o, cert: serving.TLS(), addr: listener.Addr().String(),
		calls: map[Endpoint]int{}, faults: map[Endpoint]Fault{},
	}
	if p.keys, err = newKeyRing(); err != nil {
		return nil, err
	}
	p.storage = newStorage(p.Issuer, p.keys, o.Users, o.Clients)
	config := &op.Config{
		CodeMethodS256: true, AuthMethodPost: true, GrantTypeRefreshToken: true,
		SupportedScopes: []string{"openid", "profile", "email", "groups", "groups_name", "offline_access"},
	}
	if _, err := rand.Read(config.CryptoKey[:]); err != nil {
		return nil, err
	}
	algs := []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
	p.provider, err = op.NewProvider(config, p.storage, op.StaticIssuer(p.Issuer),
		op.WithAccessTokenVerifierOpts(op.WithSupportedAccessTokenSigningAlgorithms(algs...)),
		op.WithIDTokenHintVerifierOpts(op.WithSupportedIDTokenHintSigningAlgorithms(algs...)))
	if err != nil {
		return nil, fmt.Errorf("making the OpenID provider: %w", err)
	}
	p.library = http.StripPrefix(issuerPath, p.provider)
	p.serve(listener)
	return p, nil
}

func (p *Provider) serve(l net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+issuerPath+tokenPath, p.token)
	mux.HandleFunc(issuerPath+loginPath, p.login)
	mux.Handle(issuerPath+"/", p.library)
	if p.options.NoIntrospection {
		mux.HandleFunc(issuerPath+introspectPath, http.NotFound)
		mux.Handle(issuerPath+discoveryPath, edited(p.library, func(document map[string]any) {
			delete(document, "introspection_endpoint")
		}))
	}
	p.server = &http.Server{
		Handler:   p.observe(mux),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{p.cert}, MinVersion: tls.VersionTLS12},
		// Clients that do not know the CA are part of the tests.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func(s *http.Server) {
		if err := s.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}(p.server)
}

// Stop ends the provider.
func (p *Provider) Stop() { p.Suspend() }

// Suspend closes the listener and every connection: a provider that is down.
func (p *Provider) Suspend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		p.server.Close()
		p.server = nil
	}
}

// Resume listens again on the same address.
func (p *Provider) Resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		return nil
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("resuming the OpenID provider: %w", err)
	}
	p.serve(l)
	return nil
}

// Addr is the address the provider listens on.
func (p *Provider) Addr() string { return p.addr }

// SetUser adds a user or replaces the one with that subject.
func (p *Provider) SetUser(u User) {
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	p.storage.users[u.Subject] = u
}

// SetClient adds or replaces a client.
func (p *Provider) SetClient(c Client) {
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	p.storage.clients[c.ID] = c
}

// Client is an HTTP client that trusts the provider.
func (p *Provider) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.CA.Pool(), MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}
}
