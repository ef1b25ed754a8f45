/* cmd_models.c - `ramet models`. */
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/models.h"
#include "cli/table.h"

static void print_json(const ramet_models *m) {
    ramet_json j = {.out = stdout};
    ramet_json_object_begin(&j, NULL);
    ramet_json_array_begin(&j, "models");
    for (size_t i = 0; i < m->n_found; i++) {
        ramet_json_object_begin(&j, NULL);
        ramet_json_string(&j, "name", m->found[i].name);
        ramet_json_string(&j, "store", ramet_store_name(m->found[i].store));
        ramet_json_u64(&j, "bytes", m->found[i].bytes);
        ramet_json_string(&j, "path", m->found[i].path);
        ramet_json_object_end(&j);
    }
    ramet_json_array_end(&j);
    ramet_json_array_begin(&j, "searched");
    for (size_t i = 0; i < m->n_searched; i++) {
        ramet_json_object_begin(&j, NULL);
        ramet_json_string(&j, "store", ramet_store_name(m->searched[i].store));
        ramet_json_string(&j, "directory", m->searched[i].directory);
        ramet_json_bool(&j, "exists", m->searched[i].exists);
        ramet_json_object_end(&j);
    }
    ramet_json_array_end(&j);
    ramet_json_object_end(&j);
}

static ramet_status print_table(const ramet_models *m, ramet_error *error) {
    ramet_table table = {0};
    ramet_table_add(&table, "name", "store", ">size", "path", NULL);
    for (size_t i = 0; i < m->n_found; i++)
        ramet_table_add(&table, m->found[i].name, ramet_store_name(m->found[i].store),
                        ramet_label_bytes(m->found[i].bytes).text, m->found[i].path, NULL);
    ramet_status status = ramet_table_print(&table, RAMET_TABLE_TEXT, stdout, error);
    ramet_table_free(&table);
    return status;
}

ramet_status ramet_cmd_models(const ramet_options *o, ramet_error *error) {
    ramet_models models;
    RAMET_TRY(ramet_models_scan(&models, error));
    ramet_status status = RAMET_OK;
    if (o->json)
        print_json(&models);
    else
        status = print_table(&models, error);
    for (size_t i = 0; i < models.n_searched; i++)
        ramet_say(o, "searched %s: %s%s", ramet_store_name(models.searched[i].store), models.searched[i].directory,
                  models.searched[i].exists ? "" : " (missing)");
    ramet_models_free(&models);
    return status;
}
