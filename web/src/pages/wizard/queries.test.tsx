import { QueryClient } from "@tanstack/react-query";
import { afterEach, describe, expect, it, vi } from "vitest";
import { checksQuery } from "./queries";

afterEach(() => vi.unstubAllGlobals());

describe("the checks of a connection", () => {
  it("are those of the capture that the subscription has", async () => {
    const sent = vi.fn<(request: Request) => Promise<Response>>(() => Promise.resolve(Response.json({ ok: true, findings: [] })));
    vi.stubGlobal("fetch", sent);
    const client = new QueryClient();
    const capture = { kind: "triggers" } as const;
    await client.fetchQuery(checksQuery({ connection: "shop", role: "source", tables: [], capture }));
    await client.fetchQuery(checksQuery({ connection: "shop", role: "source", tables: [] }));
    await client.fetchQuery(checksQuery({ connection: "mart", role: "target", tables: [], capture }));
    expect(await Promise.all(sent.mock.calls.map(([request]) => request.json()))).toEqual([
      { role: "source", tables: [], capture },
      { role: "source", tables: [] },
      { role: "target", tables: [] },
    ]);
  });
});
