-- A base type of the user's own, which has no binary form.
-- replicate own
-- setup
CREATE TYPE wording;
CREATE FUNCTION wording_in(cstring, oid, int) RETURNS wording LANGUAGE internal IMMUTABLE STRICT AS 'varcharin';
CREATE FUNCTION wording_out(wording) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'varcharout';
CREATE TYPE wording (INPUT = wording_in, OUTPUT = wording_out);
CREATE TABLE own (id int PRIMARY KEY, w wording, many wording[]);
INSERT INTO own VALUES (1, 'a', '{a, "b c"}');
-- workload
INSERT INTO own VALUES (2, 'b, "c"', NULL), (3, NULL, '{NULL, ""}');
-- wait
UPDATE own SET w = 'z', many = '{q}' WHERE id = 1;
UPDATE own SET id = 30 WHERE id = 3;
