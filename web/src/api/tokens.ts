import { queryOptions } from "@tanstack/react-query";
import { answer, client } from "./client";
import { keys } from "./queries";
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Token = Schemas["TokenView"];
export type Role = Schemas["Role"];

export const tokensQuery = () =>
  queryOptions({
    queryKey: keys.tokens,
    queryFn: async ({ signal }) => (await answer(client.GET("/api/v1/tokens", { signal }))).items,
  });

/** The answer has the token's text, which is not shown again. */
export const createToken = (name: string, role: Role, settings: Record<string, string>): Promise<Schemas["TokenCreated"]> =>
  answer(client.POST("/api/v1/tokens", { body: { name, role, settings } }));

/** Settings that are null are removed; those that are not named stay. */
export const changeSettings = (id: string, settings: Record<string, string | null>): Promise<Token> =>
  answer(client.PATCH("/api/v1/tokens/{token_id}", { params: { path: { token_id: id } }, body: { settings } }));

export const revokeToken = (id: string): Promise<unknown> =>
  answer(client.DELETE("/api/v1/tokens/{token_id}", { params: { path: { token_id: id } } }));
