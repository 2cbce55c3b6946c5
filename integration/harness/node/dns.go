package node

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer answers, on the node's address, with the addresses of Services,
// which it asks the apiserver for anew each time: A records of
// <service>.<namespace>.svc[.cluster.local], of a headless Service those of
// its ready endpoints, and with one more label in front those of the endpoint
// of that hostname. Every other name does not exist.
type dnsServer struct {
	services coreclient.ServicesGetter
	slices   discoveryclient.EndpointSlicesGetter
	udp      net.PacketConn
	tcp      net.Listener
	serving  sync.WaitGroup
}

const (
	dnsTTL     = 1 // second: Services change in tests
	dnsTimeout = 5 * time.Second
)

func (n *Node) startDNS(context.Context) error {
	config := n.API.AdminConfig()
	services, err := coreclient.NewForConfig(config)
	if err != nil {
		return err
	}
	slices, err := discoveryclient.NewForConfig(config)
	if err != nil {
		return err
	}
	s := &dnsServer{services: services, slices: slices}
	address := net.JoinHostPort(Address, "53")
	err = n.Namespaces.Do(func() (err error) {
		if s.udp, err = net.ListenPacket("udp", address); err != nil {
			return err
		}
		if s.tcp, err = net.Listen("tcp", address); err != nil {
			s.udp.Close()
		}
		return err
	})
	if err != nil {
		return err
	}
	s.serving.Go(s.serveUDP)
	s.serving.Go(s.serveTCP)
	n.dns = s
	return nil
}

func (s *dnsServer) stop() {
	s.udp.Close()
	s.tcp.Close()
	s.serving.Wait()
}

func (s *dnsServer) serveUDP() {
	buffer := make([]byte, 4096)
	for {
		size, client, err := s.udp.ReadFrom(buffer)
		if err != nil {
			return // closed
		}
		query := append([]byte(nil), buffer[:size]...)
		s.serving.Go(func() {
			if answer, err := s.answer(query); err == nil {
				_, _ = s.udp.WriteTo(answer, client)
			}
		})
	}
}

func (s *dnsServer) serveTCP() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return // closed
		}
		s.serving.Go(func() {
			defer conn.Close()
			for s.serveMessage(conn) == nil {
			}
		})
	}
}

// serveMessage answers one message of a TCP connection (RFC 1035, 4.2.2).
func (s *dnsServer) serveMessage(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(dnsTimeout)); err != nil {
		return err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, query); err != nil {
		return err
	}
	answer, err := s.answer(query)
	if err != nil {
		return err
	}
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	return err
}

// answer returns an error for what is no query and so gets no answer.
func (s *dnsServer) answer(query []byte) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return nil, err
	}
	question, err := parser.Question()
	if err != nil {
		return nil, err
	}
	reply := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: header.ID, Response: true, Authoritative: true,
			RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{question},
	}
	ctx, cancel := context.WithTimeout(context.Background(), dnsTimeout)
	defer cancel()
	addresses, err := s.lookup(ctx, strings.ToLower(question.Name.String()))
	switch {
	case errors.Is(err, errNoName):
		reply.RCode = dnsmessage.RCodeNameError
	case err != nil:
		reply.RCode = dnsmessage.RCodeServerFailure
	case question.Type == dnsmessage.TypeA:
		for _, a := range addresses {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: dnsTTL},
				Body:   &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	return reply.Pack()
}

var errNoName = errors.New("no such name")

// lookup returns the IPv4 addresses of an absolute name.
func (s *dnsServer) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	name = strings.TrimSuffix(strings.TrimSuffix(name, "."), "."+clusterDomain)
	name, ok := strings.CutSuffix(name, ".svc")
	labels := strings.Split(name, ".")
	var hostname string
	if len(labels) == 3 {
		hostname, labels = labels[0], labels[1:]
	}
	if !ok || len(labels) != 2 {
		return nil, errNoName
	}
	service, err := s.services.Services(labels[1]).Get(ctx, labels[0], metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, errNoName
	}
	if err != nil {
		return nil, err
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		return s.endpoints(ctx, service, hostname)
	}
	address, err := netip.ParseAddr(service.Spec.ClusterIP)
	if err != nil || hostname != "" {
		return nil, errNoName // an ExternalName, or one of no headless Service
	}
	return []netip.Addr{address}, nil
}

// endpoints are the ready ones of a headless Service.
func (s *dnsServer) endpoints(ctx context.Context, service *corev1.Service, hostname string) ([]netip.Addr, error) {
	list, err := s.slices.EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name,
	})
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			if hostname != "" && (e.Hostname == nil || *e.Hostname != hostname) {
				continue
			}
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil && a.Is4() {
					addresses = append(addresses, a)
				}
			}
		}
	}
	if len(addresses) == 0 {
		return nil, errNoName
	}
	return addresses, nil
}
