import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { session, signIn } from "../session";
import { StreamOfTest } from "../testing/stream";
import { keepConnected, link } from "./connection";
import type { StreamMessage } from "./eventStream";

const messages: StreamMessage[] = [];
const onOpen = vi.fn();
const onMessage = (message: StreamMessage): void => void messages.push(message);
const request = vi.fn<(address: string, init: RequestInit) => Promise<Response>>();
let end = (): void => undefined;

const connect = (token: string | null = null): void => {
  end = keepConnected(token, { onOpen, onMessage });
};
const settle = (ms = 0): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);
const headers = (call: number): Record<string, string> => request.mock.calls[call]?.[1].headers as Record<string, string>;

beforeEach(() => {
  vi.useFakeTimers();
  // The pauses between attempts are neither shortened nor lengthened.
  vi.spyOn(Math, "random").mockReturnValue(0.5);
  vi.stubGlobal("fetch", request);
  request.mockReset();
  onOpen.mockReset();
  messages.length = 0;
});

afterEach(() => {
  end();
  session.set({ token: null, refused: false, wrong: false });
  vi.useRealTimers();
});

describe("keepConnected", () => {
  it("opens the stream and passes its messages on", async () => {
    const line = new StreamOfTest();
    request.mockResolvedValueOnce(line.response);
    connect();
    expect(link.get()).toBe("connecting");
    await settle();
    expect(link.get()).toBe("live");
    expect(onOpen).toHaveBeenCalledTimes(1);
    line.write("event: changed\nid: 1\ndata: x\n\n");
    await settle();
    expect(messages).toEqual([{ event: "changed", data: "x", id: "1" }]);
  });

  it("sends the token", async () => {
    request.mockResolvedValueOnce(new StreamOfTest().response);
    connect("secret");
    await settle();
    expect(headers(0)).toEqual({ Authorization: "Bearer secret" });
  });

  it("reconnects after the end of the stream, from the last message on", async () => {
    const line = new StreamOfTest();
    request.mockResolvedValueOnce(line.response).mockResolvedValueOnce(new StreamOfTest().response);
    connect();
    await settle();
    line.write("id: 41\ndata: x\n\ndata: without an id\n\n");
    line.end();
    await settle();
    expect(link.get()).toBe("reconnecting");
    expect(request).toHaveBeenCalledTimes(1);
    await settle(1_000);
    expect(headers(1)).toEqual({ "Last-Event-ID": "41" });
    expect(link.get()).toBe("live");
    expect(onOpen).toHaveBeenCalledTimes(2);
  });

  it("reconnects after a broken connection", async () => {
    const line = new StreamOfTest();
    request.mockResolvedValueOnce(line.response).mockResolvedValueOnce(new StreamOfTest().response);
    connect();
    await settle();
    line.fail();
    await settle(1_000);
    expect(request).toHaveBeenCalledTimes(2);
  });

  it("waits twice as long after each failure, up to half a minute", async () => {
    request.mockRejectedValue(new TypeError("network"));
    connect();
    await settle();
    const gaps: number[] = [];
    for (let attempt = 1; attempt <= 7; attempt += 1) {
      const calls = request.mock.calls.length;
      let waited = 0;
      while (request.mock.calls.length === calls && waited < 60_000) {
        await settle(500);
        waited += 500;
      }
      gaps.push(waited);
    }
    expect(gaps).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
  });

  it("begins with short pauses again after a connection", async () => {
    request.mockRejectedValueOnce(new TypeError("network")).mockRejectedValueOnce(new TypeError("network"));
    const line = new StreamOfTest();
    request.mockResolvedValueOnce(line.response).mockResolvedValueOnce(new StreamOfTest().response);
    connect();
    await settle(3_000);
    expect(request).toHaveBeenCalledTimes(3);
    line.end();
    await settle(1_000);
    expect(request).toHaveBeenCalledTimes(4);
  });

  it("tries again at once when the network comes back", async () => {
    request.mockRejectedValueOnce(new TypeError("network")).mockResolvedValueOnce(new StreamOfTest().response);
    connect();
    await settle();
    window.dispatchEvent(new Event("online"));
    await settle();
    expect(request).toHaveBeenCalledTimes(2);
  });

  it("tries again after an answer of a proxy", async () => {
    request.mockResolvedValueOnce(new StreamOfTest(502).response).mockResolvedValueOnce(new StreamOfTest().response);
    connect();
    await settle();
    expect(link.get()).toBe("reconnecting");
    expect(onOpen).not.toHaveBeenCalled();
    await settle(1_000);
    expect(link.get()).toBe("live");
  });

  it("gives up a connection that is silent for too long", async () => {
    const aborted = vi.fn();
    request.mockImplementationOnce((_address, { signal }) => {
      signal?.addEventListener("abort", aborted);
      return Promise.resolve(new StreamOfTest().response);
    });
    connect();
    await settle(39_000);
    expect(aborted).not.toHaveBeenCalled();
    await settle(1_000);
    expect(aborted).toHaveBeenCalledTimes(1);
  });

  it("takes every chunk for a sign of life, comments too", async () => {
    const aborted = vi.fn();
    const line = new StreamOfTest();
    request.mockImplementationOnce((_address, { signal }) => {
      signal?.addEventListener("abort", aborted);
      return Promise.resolve(line.response);
    });
    connect();
    await settle(30_000);
    line.write(": still here\n\n");
    await settle(30_000);
    expect(aborted).not.toHaveBeenCalled();
    expect(messages).toEqual([]);
  });

  it("ends the session, and itself, when the token is refused", async () => {
    signIn("old");
    request.mockResolvedValueOnce(new StreamOfTest(401).response);
    connect("old");
    await settle(60_000);
    expect(request).toHaveBeenCalledTimes(1);
    expect(session.get()).toEqual({ token: null, refused: true, wrong: true });
  });

  it("does nothing more once it is ended", async () => {
    request.mockRejectedValue(new TypeError("network"));
    connect();
    await settle();
    end();
    await settle(60_000);
    expect(request).toHaveBeenCalledTimes(1);
  });
});
