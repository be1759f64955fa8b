/** A stream of the server's that a test writes to. */
export class StreamOfTest {
  readonly response: Response;
  #controller!: ReadableStreamDefaultController<Uint8Array>;

  constructor(status = 200) {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#controller = controller;
      },
    });
    this.response = new Response(body, { status });
  }

  write = (text: string): void => this.#controller.enqueue(new TextEncoder().encode(text));
  end = (): void => this.#controller.close();
  fail = (): void => this.#controller.error(new TypeError("network"));
}
