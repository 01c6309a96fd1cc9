"""The settings of the scripts that serve and convert models.

predict     the model and the source of texts
page        the model and the address of its page
conversion  weights from one format to another
hub         TF-Hub modules
"""
