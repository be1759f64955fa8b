/** A message of a `text/event-stream`. */
export interface StreamMessage {
  event: string;
  data: string;
  id: string | null;
}

/** Reads a `text/event-stream` from chunks cut anywhere, as far as Penstock uses the format; comments are passed over. */
export class EventStreamParser {
  #rest = "";
  #event = "";
  #data: string[] = [];
  #id: string | null = null;

  /** The messages that `chunk` completes. */
  push(chunk: string): StreamMessage[] {
    const lines = (this.#rest + chunk).split("\n");
    this.#rest = lines.pop() ?? "";
    const found: StreamMessage[] = [];
    for (const line of lines) {
      const message = this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (message !== null) found.push(message);
    }
    return found;
  }

  #line(line: string): StreamMessage | null {
    if (line === "") return this.#end();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id") this.#id = value;
    return null;
  }

  #end(): StreamMessage | null {
    const message = this.#data.length > 0 ? { event: this.#event || "message", data: this.#data.join("\n"), id: this.#id } : null;
    this.#event = "";
    this.#data = [];
    this.#id = null;
    return message;
  }
}
