-- replicate "Mixed Case"
-- replicate "with.dot"
-- replicate "a/b\c"
-- replicate "say ""hi"""
-- replicate "日本語 ünï"
-- replicate "select"
-- replicate "percent % and $1 'quote'"
-- setup
CREATE TABLE "Mixed Case" ("Id" int PRIMARY KEY, "The Value" text);
CREATE TABLE "with.dot" ("a.b" int PRIMARY KEY, ".." text);
CREATE TABLE "a/b\c" ("/" int PRIMARY KEY, "\" text);
CREATE TABLE "say ""hi""" ("""" int PRIMARY KEY, "a""b" text);
CREATE TABLE "日本語 ünï" ("鍵" int PRIMARY KEY, "ẞ" text);
CREATE TABLE "select" ("from" int PRIMARY KEY, "where" text, "order" text, "rowid" int);
CREATE TABLE "percent % and $1 'quote'" ("%s" int PRIMARY KEY, "$1" text, "c0" text, "k0" int, "u1" int, "n" int, ";--" text);
INSERT INTO "Mixed Case" VALUES (1, 'a'), (2, 'b');
INSERT INTO "with.dot" VALUES (1, 'a'), (2, 'b');
INSERT INTO "a/b\c" VALUES (1, 'a'), (2, 'b');
INSERT INTO "say ""hi""" VALUES (1, 'a'), (2, 'b');
INSERT INTO "日本語 ünï" VALUES (1, 'a'), (2, 'b');
INSERT INTO "select" VALUES (1, 'a', 'x', 5), (2, 'b', 'y', 6);
INSERT INTO "percent % and $1 'quote'" VALUES (1, 'a', 'b', 2, 3, 4, 'c');
-- workload
UPDATE "Mixed Case" SET "The Value" = '日本' WHERE "Id" = 1;
DELETE FROM "Mixed Case" WHERE "Id" = 2;
INSERT INTO "Mixed Case" VALUES (3, 'c');

UPDATE "with.dot" SET ".." = 'changed', "a.b" = 7 WHERE "a.b" = 1;
INSERT INTO "with.dot" VALUES (3, 'c');

UPDATE "a/b\c" SET "\" = '\' WHERE "/" = 1;
INSERT INTO "a/b\c" VALUES (3, '/');

UPDATE "say ""hi""" SET "a""b" = '"' WHERE """" = 1;
INSERT INTO "say ""hi""" VALUES (3, '''');

UPDATE "日本語 ünï" SET "ẞ" = 'ß' WHERE "鍵" = 1;
INSERT INTO "日本語 ünï" VALUES (3, 'ẞ');

UPDATE "select" SET "where" = 'there', "rowid" = 99 WHERE "from" = 1;
DELETE FROM "select" WHERE "from" = 2;

UPDATE "percent % and $1 'quote'" SET "$1" = '%', "c0" = NULL, "u1" = 0 WHERE "%s" = 1;
INSERT INTO "percent % and $1 'quote'" VALUES (2, '', '', 0, 0, 0, '');
-- wait
TRUNCATE "a/b\c";
INSERT INTO "a/b\c" VALUES (9, 'after');
