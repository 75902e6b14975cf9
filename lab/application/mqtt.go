package application

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// mosquitto is a one-way service: a publisher gets no answer. The request is in
// progress until another connection, of the client too, has the message.
func mosquitto() *Program {
	return &Program{
		Name: "mosquitto", Needs: []Need{{"mosquitto", "mosquitto"}}, Dial: dialMQTT, Without: []Kind{Wait, Mixed},
		Start: func(ctx context.Context, s *Site) error {
			conf, err := s.write("mosquitto.conf", fmt.Sprintf("listener %d %s\nallow_anonymous true\nuser root\nmax_queued_messages 0\nmax_connections -1\nlog_type error\n", s.At.Port(), s.At.Addr()))
			if err != nil {
				return err
			}
			if err := s.run("mosquitto", "-c", conf); err != nil {
				return err
			}
			return s.answers(ctx, dialMQTT)
		},
	}
}

// The packets of MQTT 3.1.1 that are needed, by their first byte.
const (
	mqttConnect   = 0x10
	mqttConnected = 0x20
	mqttPublish   = 0x30
	mqttSubscribe = 0x82
	mqttTaken     = 0x90
)

// mqtt publishes on one connection and receives on the other.
type mqtt struct {
	out, in net.Conn
	r       *bufio.Reader
	topic   string
}

var mqttTopics atomic.Uint64

func dialMQTT(ctx context.Context, s *Site) (Conn, error) {
	c := &mqtt{topic: fmt.Sprintf("t%d", mqttTopics.Add(1))}
	var err error
	for _, conn := range []*net.Conn{&c.out, &c.in} {
		if *conn, err = s.dial(ctx); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.r = bufio.NewReader(*conn)
		if err := c.begin(*conn, conn == &c.in); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// begin connects a session without a name, and subscribes to the topic.
func (c *mqtt) begin(conn net.Conn, subscribe bool) error {
	const cleanSession = 2
	hello := append(mqttText("MQTT"), 4, cleanSession, 0, 0)
	if err := mqttSend(conn, mqttConnect, append(hello, mqttText("")...)); err != nil {
		return err
	}
	if err := c.next(mqttConnected); err != nil || !subscribe {
		return err
	}
	wish := append([]byte{0, 1}, mqttText(c.topic)...)
	if err := mqttSend(conn, mqttSubscribe, append(wish, 0)); err != nil {
		return err
	}
	return c.next(mqttTaken)
}

func mqttText(text string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...)
}

func mqttSend(conn io.Writer, kind byte, body []byte) error {
	head := binary.AppendUvarint([]byte{kind}, uint64(len(body))) // 7 bits a byte, the lowest first
	if _, err := conn.Write(append(head, body...)); err != nil {
		return fmt.Errorf("MQTT: %w", err)
	}
	return nil
}

// next reads a packet of a kind.
func (c *mqtt) next(kind byte) error {
	got, err := c.r.ReadByte()
	if err != nil {
		return fmt.Errorf("MQTT: %w", err)
	}
	length, err := binary.ReadUvarint(c.r)
	if err == nil {
		_, err = io.CopyN(io.Discard, c.r, int64(length))
	}
	if err == nil && got != kind {
		err = fmt.Errorf("a packet of kind %#x, not %#x", got, kind)
	}
	if err != nil {
		return fmt.Errorf("MQTT: %w", err)
	}
	return nil
}

// unheardTakes is about the CPU time in which mosquitto takes a message without a subscriber.
const unheardTakes = 2 * time.Microsecond

// Ask publishes messages without a subscriber, as many as take the CPU time, and one that it waits for.
func (c *mqtt) Ask(ctx context.Context, r Request) error {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	var all bytes.Buffer
	for range r.CPU / unheardTakes {
		if err := mqttSend(&all, mqttPublish, mqttText("unheard")); err != nil {
			return err
		}
	}
	if err := mqttSend(&all, mqttPublish, mqttText(c.topic)); err != nil {
		return err
	}
	if _, err := c.out.Write(all.Bytes()); err != nil {
		return fmt.Errorf("MQTT: %w", err)
	}
	return c.next(mqttPublish)
}

func (c *mqtt) Close() error {
	var errs []error
	for _, conn := range []net.Conn{c.out, c.in} {
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	return errors.Join(errs...)
}
