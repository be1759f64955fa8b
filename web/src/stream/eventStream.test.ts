import { describe, expect, it } from "vitest";
import { EventStreamParser, type StreamMessage } from "./eventStream";

const parse = (...chunks: string[]): StreamMessage[] => {
  const parser = new EventStreamParser();
  return chunks.flatMap((chunk) => parser.push(chunk));
};

describe("EventStreamParser", () => {
  it("reads a message with all its fields", () => {
    expect(parse('event: changed\nid: 7\ndata: {"a": 1}\n\n')).toEqual([{ event: "changed", data: '{"a": 1}', id: "7" }]);
  });

  it("calls a message without an event “message”", () => expect(parse("data: x\n\n")).toEqual([{ event: "message", data: "x", id: null }]));

  it("joins several lines of data", () => expect(parse("data: a\ndata: b\n\n")[0]?.data).toBe("a\nb"));

  it("takes a message for complete at its empty line only", () => {
    const parser = new EventStreamParser();
    expect(parser.push("data: x\n")).toEqual([]);
    expect(parser.push("\n")).toHaveLength(1);
  });

  it("reads chunks that are cut anywhere", () => {
    const text = "event: event\r\nid: 12\r\ndata: first\r\n\r\n: still here\n\ndata: second\n\n";
    expect(parse(...text)).toEqual(parse(text));
    expect(parse(text)).toEqual([
      { event: "event", data: "first", id: "12" },
      { event: "message", data: "second", id: null },
    ]);
  });

  it("passes over comments, unknown fields and messages without data", () => {
    expect(parse(": hello\n\n", "retry: 10\n\n", "event: changed\nid: 3\n\n")).toEqual([]);
  });

  it("does not keep fields of one message for the next", () => {
    expect(parse("event: changed\n\ndata: x\n\n")).toEqual([{ event: "message", data: "x", id: null }]);
  });

  it("removes one space after the colon, and no more", () =>
    expect(parse("data:  x\n\ndata:y\n\n").map(({ data }) => data)).toEqual([" x", "y"]));

  it("takes a field without a colon for an empty one", () => expect(parse("data\n\n")).toEqual([{ event: "message", data: "", id: null }]));

  it("returns several messages of one chunk in order", () => {
    expect(parse("data: 1\n\ndata: 2\n\ndata: 3\n\n").map(({ data }) => data)).toEqual(["1", "2", "3"]);
  });
});
