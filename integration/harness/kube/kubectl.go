package kube

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// Result is how a kubectl ended.
type Result struct {
	Stdout, Stderr string
	ExitCode       int
}

// Kubectl runs real kubectl commands with one kubeconfig and a HOME of its
// own, so that neither settings nor caches of the caller play a part.
type Kubectl struct {
	Kubeconfig string
	// Tool is another kubectl, or another client that reads KUBECONFIG; the zero
	// value is the pinned kubectl.
	Tool realtools.Tool
	// Home holds kubectl's caches; each caller that must not see cached
	// discovery takes a new one.
	Home string
	// Env is added to the environment.
	Env []string
	// Stdin is given to each command; nil is empty.
	Stdin []byte
	// Namespaces to run in; nil means those of this process.
	Namespaces *process.Namespaces
}

// Run runs one command to its end. The error is about running it at all: a
// command that fails is a Result with its exit code.
func (k Kubectl) Run(ctx context.Context, args ...string) (Result, error) {
	cmd, err := k.Command(ctx, args...)
	if err != nil {
		return Result{}, err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(k.Stdin), &stdout, &stderr
	err = k.Namespaces.Do(cmd.Run)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Result{}, fmt.Errorf("running %s: %w", k.tool().Name, err)
	}
	if ctx.Err() != nil {
		return Result{}, fmt.Errorf("running %s: %w\n%s%s", k.tool().Name, ctx.Err(), stdout.String(), stderr.String())
	}
	return Result{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: cmd.ProcessState.ExitCode()}, nil
}

func (k Kubectl) tool() realtools.Tool { return cmp.Or(k.Tool, realtools.Kubectl) }

// Command is a kubectl to be started by the caller, for what streams, within
// k.Namespaces.Do when there are such. It ends with the context.
func (k Kubectl) Command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	binary, err := realtools.Path(ctx, k.tool(), nil)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(k.Home, 0o700); err != nil {
		return nil, fmt.Errorf("making the home of kubectl: %w", err)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(append(append(cleanEnv(k.Home), process.ThriftyCommand()...), "KUBECONFIG="+k.Kubeconfig), k.Env...)
	cmd.Dir = k.Home
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGKILL) }
	return cmd, nil
}

// Access is what a kubeconfig holds about one server and one user.
type Access struct {
	// Server is the URL, the path of the cluster behind the proxy included.
	Server string
	// CA is PEM; empty means the system roots.
	CA []byte
	// Token is sent as a bearer, ClientCert and ClientKey (PEM) are presented.
	Token                 string
	ClientCert, ClientKey []byte
	// TokenCommand prints an ExecCredential.
	TokenCommand []string
	// Namespace of the context; empty means default.
	Namespace string
}

// WriteKubeconfig writes a kubeconfig with one context.
func WriteKubeconfig(file string, a Access) error {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["test"] = &clientcmdapi.Cluster{Server: a.Server, CertificateAuthorityData: a.CA}
	auth := &clientcmdapi.AuthInfo{Token: a.Token, ClientCertificateData: a.ClientCert, ClientKeyData: a.ClientKey}
	if len(a.TokenCommand) > 0 {
		auth.Exec = &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			Command: a.TokenCommand[0], Args: a.TokenCommand[1:],
		}
	}
	cfg.AuthInfos["test"] = auth
	cfg.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test", Namespace: a.Namespace}
	cfg.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}

func (a *APIServer) writeKubeconfig() error {
	return WriteKubeconfig(a.Kubeconfig, Access{
		Server: a.URL, CA: a.PKI.ServerCA.PEM, ClientCert: a.admin.CertPEM, ClientKey: a.admin.KeyPEM,
	})
}
