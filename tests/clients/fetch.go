package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func main() {
	name, value, _ := strings.Cut(os.Args[1], ": ")
	for _, url := range os.Args[2:] {
		request, err := http.NewRequest("GET", url, nil)
		if err != nil {
			panic(err)
		}
		request.Header.Set(name, value)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			panic(err)
		}
		if answer.StatusCode >= 400 {
			fmt.Println(answer.Status)
		}
		io.Copy(os.Stdout, answer.Body)
		answer.Body.Close()
	}
}
