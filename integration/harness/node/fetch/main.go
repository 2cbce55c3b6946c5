// Command fetch makes an HTTP request from within a pod and prints the body of
// the answer; its exit code is 1 unless the answer is a 2xx. The image busybox
// of a node has it, because the programs of a static busybox cannot resolve
// names.
//
//	fetch [-account] [-data <JSON>] <URL>
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// credentials is where the kubelet puts those of the pod's ServiceAccount.
const credentials = "/var/run/secrets/kubernetes.io/serviceaccount/"

func main() {
	account := flag.Bool("account", false, "send the token of the pod's ServiceAccount, trust its CA")
	data := flag.String("data", "", "POST this JSON instead of a GET")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := fetch(flag.Arg(0), *account, *data); err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

func fetch(url string, account bool, data string) error {
	method := http.MethodGet
	if data != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequest(method, url, strings.NewReader(data))
	if err != nil {
		return err
	}
	if data != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	transport := &http.Transport{}
	if account {
		if transport.TLSClientConfig, err = useAccount(req); err != nil {
			return err
		}
	}
	client := &http.Client{Timeout: 15 * time.Second, Transport: transport}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

func useAccount(req *http.Request) (*tls.Config, error) {
	token, err := os.ReadFile(credentials + "token")
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+string(token))
	ca, err := os.ReadFile(credentials + "ca.crt")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("no certificate in %sca.crt", credentials)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
