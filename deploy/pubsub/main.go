// Command pubsub-server runs Google's in-memory Pub/Sub server for tests on loopback.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	port := flag.Int("port", 8085, "the port to listen on, on loopback only")
	flag.Parse()
	server := pstest.NewServerWithAddress(fmt.Sprintf("127.0.0.1:%d", *port))
	defer server.Close()
	fmt.Println("listening on", server.Addr)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
