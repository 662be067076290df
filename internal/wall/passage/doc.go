// Package passage lets the program of a server reach the hosts that its permissions name, and nothing else.
//
// The program gets a network of its own: a network namespace, in which there is only the loopback interface. Package passage decides which addresses exist
// there, answers DNS there, and carries each connection to a permitted port from there to the real host. It opens that connection in the network of the
// machine, with package dial, which decides where a name may lead. It carries bytes and does not look at them, so TLS goes from end to end.
//
// A permitted name has an address of loopback in the program's network, and every other name does not exist there. A permitted address is an address of the
// loopback interface there. Nothing else is: the kernel has no route to other addresses, and no message of DNS leaves the machine.
package passage
